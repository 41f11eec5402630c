// A webhook receiver on loopback, with a certificate of a private authority.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Starts the receiver. `answer` returns status and body for an event. `roots` is the authority's certificate file. */
export async function startHookServer(answer) {
  const folder = mkdtempSync(join(tmpdir(), "postrider-hook-"));
  const { key, cert, roots } = certificate(folder);
  const server = createServer({ key, cert }, async (request, response) => {
    let body = "";
    for await (const part of request) body += part;
    const reply = answer(JSON.parse(body));
    response.writeHead(reply.status, { "Content-Type": "text/html" });
    response.end(reply.body);
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  const close = () => {
    server.closeAllConnections();
    server.close();
    rmSync(folder, { recursive: true, force: true });
  };
  return { url: `https://127.0.0.1:${server.address().port}/hook`, roots, close };
}

function certificate(folder) {
  const at = (name) => join(folder, name);
  const openssl = (...words) => execFileSync("openssl", words, { stdio: ["ignore", "ignore", "pipe"] });
  const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  const root = ["-keyout", at("root.key"), "-out", at("root.pem"), "-subj", "/CN=browser test root", "-days", "2"];
  openssl("req", "-x509", ...curve, ...root);
  openssl("req", "-new", ...curve, "-keyout", at("key.pem"), "-out", at("request.pem"), "-subj", "/CN=127.0.0.1");
  writeFileSync(at("extensions"), "subjectAltName=IP:127.0.0.1\nbasicConstraints=critical,CA:FALSE\n");
  const issued = ["-CAcreateserial", "-days", "2", "-extfile", at("extensions"), "-out", at("cert.pem")];
  openssl("x509", "-req", "-in", at("request.pem"), "-CA", at("root.pem"), "-CAkey", at("root.key"), ...issued);
  return { key: readFileSync(at("key.pem")), cert: readFileSync(at("cert.pem")), roots: at("root.pem") };
}
