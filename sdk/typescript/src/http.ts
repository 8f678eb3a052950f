import { codeOf, PromError } from "./error.js";
import { HTTP_MS } from "./limits.js";
import type { TokenSource } from "./session.js";

export interface HttpOptions {
  /** `http:` or `https:`. */
  base: string;
  token: TokenSource | undefined;
}

/** A request to a resource of docs/http.md. */
export interface HttpWish {
  method?: "GET" | "POST" | "PUT" | "DELETE";
  path: string;
  query?: Readonly<Record<string, string | number | readonly string[] | undefined>>;
  body?: unknown;
}

/** Asks for an answer of lines of JSON, and gives them as they come. The server waits for a slow reader. */
export async function* askLines(options: HttpOptions, wish: HttpWish): AsyncGenerator<unknown> {
  const leaving = new AbortController();
  // Of the first answer only: what is read slowly may take its time.
  const timer = setTimeout(() => leaving.abort(), HTTP_MS);
  try {
    const answer = await request(options, wish, leaving.signal);
    clearTimeout(timer);
    if (!answer.ok) {
      throw problemError(answer.status, await answer.text());
    }
    let rest = "";
    for await (const piece of pieces(options, answer)) {
      const lines = (rest + piece).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        yield JSON.parse(line);
      }
    }
  } finally {
    clearTimeout(timer);
    leaving.abort();
  }
}

async function* pieces(options: HttpOptions, answer: Response): AsyncGenerator<string> {
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const piece = await reader?.read();
      if (piece === undefined || piece.done) {
        return;
      }
      yield piece.value;
    }
  } catch (cause) {
    throw new PromError("unreachable", `the answer from ${options.base} broke off`, { cause });
  }
}

/** Asks, and reads the answer. Refusals are problem documents, and become errors with their code. */
export async function ask(options: HttpOptions, wish: HttpWish): Promise<unknown> {
  const answer = await request(options, wish, AbortSignal.timeout(HTTP_MS));
  let text: string;
  try {
    text = await answer.text();
  } catch (cause) {
    throw new PromError("unreachable", `no answer from ${options.base}`, { cause });
  }
  if (!answer.ok) {
    throw problemError(answer.status, text);
  }
  return text === "" ? undefined : JSON.parse(text);
}

async function request(
  options: HttpOptions,
  wish: HttpWish,
  signal: AbortSignal,
): Promise<Response> {
  const url = new URL(wish.path, options.base);
  for (const [name, value] of Object.entries(wish.query ?? {})) {
    for (const one of [value ?? []].flat()) {
      url.searchParams.append(name, String(one));
    }
  }
  const headers: Record<string, string> = {};
  const { token } = options;
  if (token !== undefined) {
    headers.authorization = `Bearer ${typeof token === "string" ? token : await token()}`;
  }
  const init: RequestInit = {
    method: wish.method ?? "GET",
    headers,
    signal,
  };
  if (wish.body !== undefined) {
    headers["content-type"] = "application/json";
    init.body = JSON.stringify(wish.body);
  }
  try {
    return await fetch(url, init);
  } catch (cause) {
    throw new PromError("unreachable", `no answer from ${options.base}`, { cause });
  }
}

/** The error that a problem document describes. */
export function problemError(status: number, text: string): PromError {
  let problem: {
    code?: string;
    detail?: string;
    title?: string;
    retryable?: boolean;
    retry_ms?: number;
  };
  try {
    problem = JSON.parse(text);
  } catch {
    return new PromError("unreachable", `status ${status}, from what is not Promethean`);
  }
  const { detail, title, retryable, retry_ms: retryMs } = problem;
  const words = detail ?? title ?? `status ${status}`;
  return new PromError(codeOf(problem.code), words, { retryable, retryMs, problem });
}
