/** Shows what `process.state` says: a row for each process, alive or stale; gone when it is gone. */
import { Bus } from "promethean";

interface ProcessState {
  name: string;
  host: string;
  pid: number;
  cpu_pct: number;
  mem_mb: number;
  status: string;
}

const url = new URLSearchParams(location.search).get("bus") ?? "ws://127.0.0.1:7766";
const element = (id: string) => document.querySelector(`#${id}`) as HTMLElement;
const [connection, summary, table] = ["connection", "summary", "processes"].map(element) as [
  HTMLElement,
  HTMLElement,
  HTMLElement,
];
const rows = new Map<string, HTMLTableRowElement>();
/** `a:9` comes before `a:10`. */
const order = new Intl.Collator("en", { numeric: true }).compare;

const bus = new Bus({
  url,
  onState: ({ state, error }) => {
    connection.dataset.state = state;
    connection.textContent = error === undefined ? state : `${state}: ${error.message}`;
  },
});

/** The row of a process; a new one takes its place among the others, by name, and keeps it. */
function rowOf(key: string): HTMLTableRowElement {
  const known = rows.get(key);
  if (known !== undefined) {
    return known;
  }
  const row = document.createElement("tr");
  rows.set(key, row);
  const after = [...rows.keys()].filter((other) => order(other, key) > 0).sort(order)[0];
  table.insertBefore(row, after === undefined ? null : (rows.get(after) ?? null));
  row.addEventListener("animationend", () => row.classList.remove("told"));
  return row;
}

function show(key: string, state: ProcessState): void {
  const row = rowOf(key);
  const { name, host, pid, cpu_pct, mem_mb, status } = state;
  row.dataset.status = status;
  row.classList.add("told");
  const cells = [name, host, pid, cpu_pct.toFixed(1), mem_mb.toFixed(0), status];
  const kinds = ["", "", "number", "number cpu", "number", ""];
  row.replaceChildren(
    ...cells.map((content, index) => {
      const cell = document.createElement("td");
      cell.className = kinds[index] ?? "";
      cell.textContent = String(content);
      return cell;
    }),
  );
  row.style.setProperty("--share", `${Math.min(cpu_pct, 100)}%`);
}

function remove(key: string): void {
  rows.get(key)?.remove();
  rows.delete(key);
}

function count(): void {
  const stale = [...rows.values()].filter((row) => row.dataset.status === "stale").length;
  summary.textContent = `${rows.size - stale} alive${stale === 0 ? "" : `, ${stale} stale`}`;
}

// All states there are, then each change; after a lost connection it goes on where it was.
const states = bus.tail("process.state", {
  from: "earliest",
  onGap: ({ reason }) => {
    // Another server: what it knows comes from its beginning.
    if (reason === "epoch") {
      [...rows.keys()].forEach(remove);
    }
  },
});

for await (const event of states) {
  const key = event.key ?? event.id;
  if (event.payload === null) {
    remove(key);
  } else {
    show(key, event.payload as ProcessState);
  }
  count();
}
