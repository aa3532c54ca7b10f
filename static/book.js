// Opened as a file, the book cannot read its other pages, and the search page would log an error for each result's summary.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

// The verdict among the lines that a cell prints, `A5 · holds · sentence`, becomes a box of its own; the cell still prints it as
// plain text. Outputs are read while the page is loading, so that no reader sees the plain line first.
(() => {
  const verdict = /^([A-Z][1-9]\d*) · (holds|holds when|does not hold here) · (.+)$/;
  const kinds = { holds: "holds", "holds when": "when", "does not hold here": "not" };

  const box = ([, claim, word, sentence]) => {
    const [p, strong] = [document.createElement("p"), document.createElement("strong")];
    p.className = `verdict ${kinds[word]}`;
    strong.textContent = word;
    p.append(`${claim} · `, strong, ` · ${sentence}`);
    return p;
  };

  const read = (pre) => {
    const boxes = [];
    for (const node of [...pre.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE)) {
      const lines = node.data.split("\n").map((line) => [line, line.match(verdict)]);
      const rest = lines.filter(([, found]) => !found).map(([line]) => line);
      boxes.push(...lines.flatMap(([, found]) => (found ? [box(found)] : [])));
      if (rest.length < lines.length) node.data = rest.join("\n");
    }
    const output = pre.closest(".output");
    output.after(...boxes);
    if (boxes.length && !pre.textContent.trim()) output.remove();
    if (/\S {2,}\S/.test(pre.textContent)) pre.classList.add("columns"); // they scroll instead of wrapping
  };

  const readAll = () => {
    for (const pre of document.querySelectorAll(".cell_output .stream pre:not([data-read])")) {
      if (!pre.nextSibling && document.readyState === "loading") continue; // its end may be still to come
      pre.dataset.read = "";
      read(pre);
    }
  };
  const observer = new MutationObserver(readAll);
  observer.observe(document, { childList: true, subtree: true });
  document.addEventListener("DOMContentLoaded", () => {
    observer.disconnect();
    readAll();
  });
})();

// What scrolls sideways fades at the edge behind which there is more (book.css), and can be scrolled with the arrow keys. The
// theme sees to the keys in outputs of cells, and an explorer to its own picture.
document.addEventListener("DOMContentLoaded", () => {
  for (const picture of document.querySelectorAll("article .cell_output figure > :is(img, a)")) {
    const frame = document.createElement("div"); // so that a picture scrolls and fades, and its caption does not
    frame.className = "picture-frame";
    picture.replaceWith(frame);
    frame.append(picture);
  }
  for (const cell of document.querySelectorAll("article table.dataframe :is(th, td)")) {
    if (cell.textContent.length > 20) cell.classList.add("prose");
  }
  const theirs = ".cell_output > .text_html, .cell_output > .image_png, .cell_output .stream pre, .explorer .picture";
  const show = (box) => {
    const more = box.scrollWidth - box.clientWidth;
    box.classList.toggle("more-left", box.scrollLeft > 1);
    box.classList.toggle("more-right", more - box.scrollLeft > 1);
    if (box.matches(theirs)) return;
    if (more > 0) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  };
  const watcher = new ResizeObserver((seen) => seen.forEach(({ target }) => show(target)));
  for (const box of document.querySelectorAll(`article :is(.pst-scrollable-table-container, .picture-frame, ${theirs})`)) {
    box.addEventListener("scroll", () => show(box), { passive: true });
    watcher.observe(box);
  }
});
