// Without this script the tables stand as they are; so the buttons are made here, too.
"use strict";
const order = new Intl.Collator("en", { numeric: true });
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const body = table.tBodies[0];
      const rows = [...body.rows].map((row) => {
        const cell = row.cells[column];
        const number = cell.dataset.value;
        return { row, value: number === undefined ? cell.textContent : Number(number), empty: !cell.textContent };
      });
      rows.sort((a, b) => {
        if (a.empty || b.empty) return a.empty - b.empty;
        const both = typeof a.value === "number" && typeof b.value === "number";
        const way = both ? Math.sign(a.value - b.value) || 0 : order.compare(String(a.value), String(b.value));
        return sign * way;
      });
      body.append(...rows.map((entry) => entry.row));
    });
  });
}
