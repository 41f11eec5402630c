// Client for Postrider, the self-hosted transactional email service. Types are in index.d.ts.

/** Maximum wait before a retry, in milliseconds. */
const WAIT_MAX_MS = 60_000;
/** Wait before the first retry without a Retry-After; it doubles with each retry. */
const WAIT_FIRST_MS = 500;

const encoder = new TextEncoder();

/** The service refused a request, or failed. */
export class ApiError extends Error {
  constructor(status, code, message, { errors = {}, requestId = null, retryAfter = null } = {}) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.errors = errors;
    this.requestId = requestId;
    this.retryAfter = retryAfter;
  }
}

/** A webhook's signature is missing, malformed, wrong or too old. */
export class SignatureError extends Error {
  constructor(message) {
    super(message);
    this.name = "SignatureError";
  }
}

/** Sends messages and reads their status and events. */
export class Postrider {
  #apiKey;

  constructor({ url, apiKey, timeoutMs = 30_000, retries = 3 } = {}) {
    const env = globalThis.process?.env ?? {};
    const base = url || env.POSTRIDER_URL;
    const key = apiKey || env.POSTRIDER_API_KEY;
    if (!base) throw new TypeError("Give the service's url, or set POSTRIDER_URL.");
    if (!key) throw new TypeError("Give an apiKey, or set POSTRIDER_API_KEY.");
    this.url = base.replace(/\/+$/, "");
    this.timeoutMs = timeoutMs;
    this.retries = retries;
    this.#apiKey = key;
  }

  /** Sends one message to one recipient. Without `idempotencyKey` one is generated, so that no retry sends twice. */
  async send({ idempotencyKey, ...message }) {
    const headers = { "Idempotency-Key": idempotencyKey ?? crypto.randomUUID() };
    return this.#request("POST", "/v1/messages", JSON.stringify(message), headers);
  }

  /** Returns the message with its events. */
  async get(id) {
    return this.#request("GET", `/v1/messages/${encodeURIComponent(id)}`);
  }

  /** Cancels a message that is still waiting. If it is too late, throws an ApiError with status 409. */
  async cancel(id) {
    return this.#request("POST", `/v1/messages/${encodeURIComponent(id)}/cancel`);
  }

  /** Iterates over all matching messages, newest first. `limit` is the size of a page. */
  messages(filters = {}) {
    return this.#pages("/v1/messages", filters);
  }

  /** Iterates over all matching events, newest first. `limit` is the size of a page. */
  events(filters = {}) {
    return this.#pages("/v1/events", filters);
  }

  async *#pages(path, filters) {
    const given = Object.entries(filters).filter(([, value]) => value !== undefined && value !== null);
    let query = new URLSearchParams(given.flatMap(([name, value]) =>
      typeof value === "object"
        ? Object.entries(value).map(([key, one]) => [`${name}[${key}]`, String(one)])
        : [[name, String(value)]]));
    for (;;) {
      const page = await this.#request("GET", query.size > 0 ? `${path}?${query}` : path);
      yield* page.data;
      if (page.next_cursor === null) return;
      // A cursor includes its filters.
      const next = new URLSearchParams({ cursor: page.next_cursor });
      if (query.has("limit")) next.set("limit", query.get("limit"));
      query = next;
    }
  }

  async #request(method, path, body, headers = {}) {
    let wait = WAIT_FIRST_MS;
    for (let left = this.retries; ; left -= 1) {
      let pause = wait;
      try {
        return await this.#once(method, path, body, headers);
      } catch (error) {
        if (left <= 0 || !isPassing(error)) throw error;
        if (error instanceof ApiError && error.retryAfter !== null) pause = error.retryAfter * 1000;
      }
      await new Promise((resume) => setTimeout(resume, Math.min(pause, WAIT_MAX_MS)));
      wait *= 2;
    }
  }

  async #once(method, path, body, headers) {
    const fields = { Authorization: `Bearer ${this.#apiKey}`, Accept: "application/json", ...headers };
    if (body !== undefined) fields["Content-Type"] = "application/json";
    const signal = AbortSignal.timeout(this.timeoutMs);
    let answer;
    let text;
    try {
      // The API has no redirects; following one would send the key to another server.
      answer = await fetch(this.url + path, { method, body, headers: fields, redirect: "manual", signal });
      text = await answer.text();
    } catch (cause) {
      throw new ConnectionFault(`No answer from ${this.url}: ${cause?.cause?.message ?? cause?.message}`, { cause });
    }
    if (answer.ok) return JSON.parse(text);
    throw apiError(answer, text);
  }
}

/** The connection failed, or there was no answer in time. */
class ConnectionFault extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = "ConnectionError";
  }
}

/** Whether the same request may succeed later. */
function isPassing(error) {
  if (error instanceof ConnectionFault) return true;
  if (!(error instanceof ApiError)) return false;
  return error.status === 429 || error.status >= 500 || error.code === "idempotency_in_progress";
}

function apiError(answer, text) {
  let told = {};
  try {
    const parsed = JSON.parse(text);
    if (parsed !== null && typeof parsed === "object") told = parsed;
  } catch {
    // A proxy has answered instead of the service.
  }
  const after = answer.headers.get("retry-after") ?? "";
  return new ApiError(answer.status, told.code ?? "unknown", told.message ?? `The service answered ${answer.status}.`, {
    errors: told.errors ?? {},
    requestId: answer.headers.get("x-request-id"),
    retryAfter: /^[0-9]+$/.test(after) ? Number(after) : null,
  });
}

/**
 * Checks the header `X-Service-Signature` of a webhook and returns the event in its body. `body` is the raw body as
 * received: bytes, or a string of them in UTF-8.
 */
export async function verify(secret, body, signature, { tolerance = 300, now = Date.now() / 1000 } = {}) {
  const match = /^t=([0-9]{1,15}),v1=([0-9a-f]{64})$/.exec(signature ?? "");
  if (match === null) throw new SignatureError("The signature header is missing or malformed.");
  const [, stamp, given] = match;
  const raw = typeof body === "string" ? encoder.encode(body) : bytesOf(body);
  const begin = encoder.encode(`${stamp}.`);
  const signed = new Uint8Array(begin.length + raw.length);
  signed.set(begin);
  signed.set(raw, begin.length);
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", encoder.encode(secret), algorithm, false, ["verify"]);
  const digest = Uint8Array.from(given.match(/../g), (pair) => Number.parseInt(pair, 16));
  // WebCrypto compares in constant time.
  if (!(await crypto.subtle.verify("HMAC", key, digest, signed))) {
    throw new SignatureError("The signature does not match the body.");
  }
  if (Math.abs(now - Number(stamp)) > tolerance) {
    throw new SignatureError("The signature is older than the tolerance, or from the future.");
  }
  let event;
  try {
    event = JSON.parse(new TextDecoder().decode(raw));
  } catch {
    throw new SignatureError("The body is not JSON.");
  }
  if (event === null || typeof event !== "object" || Array.isArray(event)) {
    throw new SignatureError("The body is not an event.");
  }
  return event;
}

/** Returns the bytes of a buffer or a view. */
function bytesOf(body) {
  if (ArrayBuffer.isView(body)) return new Uint8Array(body.buffer, body.byteOffset, body.byteLength);
  return new Uint8Array(body);
}
