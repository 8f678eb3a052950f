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
const connection = document.querySelector("#connection") as HTMLElement;
const table = document.querySelector("#processes") as HTMLElement;
const rows = new Map<string, HTMLTableRowElement>();

const bus = new Bus({
  url,
  onState: ({ state, error }) => {
    connection.textContent = error === undefined ? state : `${state}: ${error.message}`;
  },
});

function show(key: string, state: ProcessState): void {
  const row = rows.get(key) ?? table.appendChild(document.createElement("tr"));
  rows.set(key, row);
  row.dataset.status = state.status;
  const { name, host, pid, cpu_pct, mem_mb, status } = state;
  const cells = [name, host, pid, cpu_pct.toFixed(1), mem_mb.toFixed(0), status];
  row.replaceChildren(
    ...cells.map((content, index) => {
      const cell = document.createElement("td");
      cell.className = index >= 2 && index <= 4 ? "number" : "";
      cell.textContent = String(content);
      return cell;
    }),
  );
}

function remove(key: string): void {
  rows.get(key)?.remove();
  rows.delete(key);
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
}
