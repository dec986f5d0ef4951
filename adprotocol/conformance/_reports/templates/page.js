// Filters and copy buttons; without scripts the page shows everything and neither of them.
"use strict";
const form = document.querySelector(".filters");
const rows = [...document.querySelectorAll("#scenarios tbody tr")];
const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));

function filter() {
  const wanted = new FormData(form);
  const words = wanted.get("text").toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows) {
    const fits = ["outcome", "level", "hook"].every((key) => !wanted.get(key) || row.dataset[key] === wanted.get(key));
    row.hidden = !(fits && words.every((word) => texts.get(row).includes(word)));
    shown += row.hidden ? 0 : 1;
  }
  form.querySelector("output").textContent = `${shown} of ${rows.length} shown`;
}

if (form) {
  form.hidden = false;
  form.addEventListener("input", filter);
  form.addEventListener("reset", () => setTimeout(filter));
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
}

async function copy(button, block) {
  try {
    await navigator.clipboard.writeText(block.textContent);
    button.textContent = "Copied";
  } catch {
    // A page from a file may have no clipboard: mark the text, so that one key copies it.
    getSelection().selectAllChildren(block);
    button.textContent = "Marked: press Ctrl+C or Cmd+C";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2500);
}

for (const block of document.querySelectorAll("pre.repro")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", () => copy(button, block));
  block.after(button);
}
