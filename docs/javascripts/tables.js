// What the theme's tables lack on small windows.
const PHONE = "(max-width: 600px)";

// Rows of a table that is wider than a phone become cards, in which each cell names its column (see site.css).
function asCards() {
  if (!window.matchMedia(PHONE).matches) return;
  for (const table of document.querySelectorAll(".md-typeset table:not([class]):not([data-cards])")) {
    if (table.getBoundingClientRect().width <= document.querySelector(".md-content__inner > h1").clientWidth) continue;
    const columns = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.cells].forEach((cell, place) => cell.setAttribute("data-column", columns[place] ?? ""));
    }
    table.dataset.cards = "";
  }
}

// A table that scrolls in its own box can be scrolled by the keyboard, too.
function focusable() {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

for (const event of ["load", "resize"]) {
  window.addEventListener(event, () => {
    asCards();
    focusable();
  });
}
