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

/** Asks, and reads the answer. Refusals are problem documents, and become errors with their code. */
export async function ask(options: HttpOptions, wish: HttpWish): Promise<unknown> {
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
    signal: AbortSignal.timeout(HTTP_MS),
  };
  if (wish.body !== undefined) {
    headers["content-type"] = "application/json";
    init.body = JSON.stringify(wish.body);
  }
  let answer: Response;
  let text: string;
  try {
    answer = await fetch(url, init);
    text = await answer.text();
  } catch (cause) {
    throw new PromError("unreachable", `no answer from ${options.base}`, { cause });
  }
  if (!answer.ok) {
    throw problemError(answer.status, text);
  }
  return text === "" ? undefined : JSON.parse(text);
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
