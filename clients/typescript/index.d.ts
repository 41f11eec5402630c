/** Client for Postrider, the self-hosted transactional email service. */

export interface ClientOptions {
  /** Base URL of the service; default: the variable `POSTRIDER_URL`. */
  url?: string;
  /** An API key; default: the variable `POSTRIDER_API_KEY`. */
  apiKey?: string;
  /** Time limit of each attempt in milliseconds. Default: 30000. */
  timeoutMs?: number;
  /** Maximum number of retries after a connection error, a 429 or a 5xx. Default: 3. */
  retries?: number;
}

export type Stream = "transactional" | "marketing";
export type Status =
  | "queued"
  | "delivered"
  | "deferred"
  | "bounced"
  | "failed"
  | "suppressed"
  | "canceled"
  | "complained";

export interface Attachment {
  filename: string;
  /** Base64. */
  content: string;
  content_type?: string;
  /** Makes the file inline, for `cid:` links. */
  content_id?: string;
}

/** The fields of `POST /v1/messages`. */
export interface Message {
  from: string;
  to: string;
  from_name?: string;
  subject?: string;
  text?: string;
  html?: string;
  headers?: Record<string, string>;
  unsubscribe_url?: string;
  attachments?: Attachment[];
  metadata?: Record<string, string>;
  expires_at?: string;
  raw?: string;
}

export interface SendOptions extends Message {
  /** 1 to 255 printable ASCII characters; generated if absent. */
  idempotencyKey?: string;
}

export interface Sent {
  id: string;
  message_id_header: string;
  status: Status;
  stream: Stream;
  from: string;
  to: string;
  subject: string | null;
  created_at: string;
}

export interface Event {
  id: string;
  type: string;
  message_id: string;
  message_id_header: string;
  stream: Stream;
  from: string;
  to: string;
  subject: string | null;
  metadata: Record<string, string>;
  created_at: string;
  attempt: number | null;
  smtp_code: number | null;
  smtp_response: string | null;
  mx_host: string | null;
  [member: string]: unknown;
}

export interface MessageRecord extends Sent {
  metadata: Record<string, string>;
  attempts: number;
  /** Present on one message, absent in lists. */
  events?: Event[];
  [member: string]: unknown;
}

export interface MessageFilters {
  to?: string;
  from?: string;
  subject?: string;
  message_id_header?: string;
  status?: Status;
  stream?: Stream;
  after?: string;
  before?: string;
  /** Up to three pairs; a message must have exactly these values. */
  metadata?: Record<string, string>;
  /** The size of a page, 1 to 100. */
  limit?: number;
}

export interface EventFilters {
  message_id?: string;
  type?: string;
  after?: string;
  before?: string;
  /** The size of a page, 1 to 100. */
  limit?: number;
}

export class Postrider {
  constructor(options?: ClientOptions);
  readonly url: string;
  readonly timeoutMs: number;
  readonly retries: number;
  /** Sends one message to one recipient. */
  send(message: SendOptions): Promise<Sent>;
  /** Returns the message with its events. */
  get(id: string): Promise<MessageRecord>;
  /** Cancels a message that is still waiting. */
  cancel(id: string): Promise<MessageRecord>;
  /** Iterates over all matching messages, newest first. */
  messages(filters?: MessageFilters): AsyncGenerator<MessageRecord, void, undefined>;
  /** Iterates over all matching events, newest first. */
  events(filters?: EventFilters): AsyncGenerator<Event, void, undefined>;
}

/** The service refused a request, or failed. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  /** The errors by field; empty if the error is not about fields. */
  readonly errors: Record<string, string[]>;
  readonly requestId: string | null;
  /** Seconds to wait before a retry, if the service returned them. */
  readonly retryAfter: number | null;
}

/** A webhook's signature is missing, malformed, wrong or too old. */
export class SignatureError extends Error {}

export interface VerifyOptions {
  /** Maximum age of a signature in seconds. Default: 300. */
  tolerance?: number;
  /** The current time in seconds since the epoch, for tests. */
  now?: number;
}

/** Checks a webhook's `X-Service-Signature` and returns its event. Rejects with a SignatureError. */
export function verify(
  secret: string,
  body: string | ArrayBuffer | ArrayBufferView,
  signature: string | null | undefined,
  options?: VerifyOptions,
): Promise<Event>;
