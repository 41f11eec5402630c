// A mail server with a configurable answer for every recipient.

import { createServer } from "node:net";

/** Listens on loopback. `answer` returns the answer to RCPT for an address. */
export async function startMailServer(answer) {
  const server = createServer((socket) => {
    let isBody = false;
    let rest = "";
    const say = (line) => socket.write(`${line}\r\n`);
    const answers = {
      EHLO: () => say("250-mx.hostile.test\r\n250 8BITMIME"),
      RCPT: (line) => say(answer(/<(.*)>/.exec(line)[1])),
      DATA: () => ((isBody = true), say("354 Go on")),
      QUIT: () => (say("221 Bye"), socket.end()),
    };
    socket.on("error", () => {});
    socket.on("data", (bytes) => {
      const lines = (rest + bytes.toString("latin1")).split("\r\n");
      rest = lines.pop();
      for (const line of lines) {
        if (isBody) {
          if (line === ".") (isBody = false), say("250 2.0.0 Taken");
        } else {
          (answers[line.slice(0, 4).toUpperCase()] ?? (() => say("250 2.0.0 Ok")))(line);
        }
      }
    });
    say("220 mx.hostile.test");
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  return { port: server.address().port, close: () => server.close() };
}
