// Wide tables are folded where there is no room for them; the picture above each shows the same.
if (matchMedia("(min-width: 48em)").matches) {
  addEventListener("DOMContentLoaded", () => {
    for (const fold of document.querySelectorAll("details.wide")) fold.open = true;
  });
}
