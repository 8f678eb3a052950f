import { ask, type HttpOptions } from "./http.js";

/** An event of a trace. */
export interface TraceNode {
  id: string;
  /** How far from where the trace began: causes below 0, effects above. */
  depth: number;
  causes: string[];
  /** Those of its effects that are in the trace. */
  effects: string[];
  /** Not there if the event is gone, or may not be read. */
  event?: {
    topic: string;
    partition: number;
    offset: number;
    key: string | null;
    ts: number;
    appended_at: number;
  };
}

/** An event with what led to it and what it led to, causes first. */
export interface Trace {
  id: string;
  /** Whether that is all there is. */
  complete: boolean;
  events: TraceNode[];
}

export interface TraceOptions {
  /** Only towards causes, or only towards effects. Default: both. */
  direction?: "up" | "down";
  /** Steps in either direction. */
  depth?: number;
}

export async function trace(http: HttpOptions, id: string, options: TraceOptions): Promise<Trace> {
  const path = `/trace/${encodeURIComponent(id)}`;
  return (await ask(http, { path, query: { ...options } })) as Trace;
}
