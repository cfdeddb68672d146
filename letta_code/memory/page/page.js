"use strict";
(() => {
  const box = document.getElementById("search");
  const found = document.getElementById("found");
  const items = [...document.querySelectorAll("[data-find]")];
  const folders = [...document.querySelectorAll(".tree .folder")].reverse();
  const texts = new Map();
  const plain = (text) => text.normalize("NFKC").toLowerCase();
  const textOf = (item) => {
    if (!texts.has(item)) {
      const link = item.matches(".leaf") ? item.querySelector("a") : null;
      const target = link && document.getElementById(link.hash.slice(1));
      texts.set(item, plain((target || item).textContent));
    }
    return texts.get(item);
  };
  const search = () => {
    const words = plain(box.value).split(/\s+/).filter(Boolean);
    let files = 0;
    let commits = 0;
    for (const item of items) {
      item.hidden = !words.every((word) => textOf(item).includes(word));
      if (item.hidden) continue;
      if (item.matches(".leaf")) files += 1;
      if (item.matches(".commit")) commits += 1;
    }
    for (const folder of folders) {
      folder.hidden = !folder.querySelector(".leaf:not([hidden])");
    }
    found.textContent = words.length ? `${files} files, ${commits} commits` : "";
  };
  const reveal = () => {
    const target = document.getElementById(location.hash.slice(1));
    const inside = target && target.querySelector(":scope > details");
    if (inside) inside.open = true;
  };
  box.parentElement.hidden = false;
  box.addEventListener("input", search);
  addEventListener("hashchange", reveal);
  addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== box) {
      event.preventDefault();
      box.focus();
    } else if (event.key === "Escape" && document.activeElement === box) {
      box.value = "";
      search();
    }
  });
  reveal();
})();
