// The static face of the attention playground: the same steps as `attention_steps` in playground.py, in the reader's browser.
((form) => {
  const data = JSON.parse(form.querySelector('script[type="application/json"]').textContent);
  const all = (selector) => [...form.querySelectorAll(selector)];
  const points = all(".point");
  const inputs = all("input");
  const says = form.querySelector(".says");
  let x = structuredClone(data.x);

  const times = (a, b) => a.map((row) => b[0].map((_, j) => row.reduce((sum, value, i) => sum + value * b[i][j], 0)));
  const transpose = (a) => a[0].map((_, j) => a.map((row) => row[j]));
  const softmax = (row) => {
    const parts = row.map((score) => Math.exp(score - Math.max(...row)));
    const total = parts.reduce((sum, part) => sum + part, 0);
    return parts.map((part) => part / total);
  };

  const attentionSteps = () => {
    const [query, key, value] = data.maps.map((map) => times(x, map));
    const scores = times(query, transpose(key));
    const scaled = scores.map((row) => row.map((score) => score / Math.sqrt(query[0].length)));
    const weights = scaled.map(softmax);
    return { query, key, value, scores, scaled, weights, output: times(weights, value) };
  };

  const written = (number, digits = 3) => (Math.round(number * 10 ** digits) / 10 ** digits || 0).toFixed(digits).replace("-", "−");
  const filled = (text, parts) => text.replace(/\{(\w+)\}/g, (_, name) => parts[name]);
  const put = (selector, vectors) =>
    all(selector).forEach((node, i) => node.setAttribute("transform", `translate(${vectors[i][0]} ${-vectors[i][1]})`));
  const line = (node, [x1, y1], [x2, y2]) =>
    Object.entries({ x1, y1: -y1, x2, y2: -y2 }).forEach(([name, at]) => node.setAttribute(name, at));

  // `moved` is the token that the sentence speaks of; `typing` is the field that the reader is in, which is left alone.
  const render = (moved = 0, typing = null) => {
    const steps = attentionSteps();
    for (const [name, matrix] of Object.entries(steps)) {
      all(`[data-matrix="${name}"] td`).forEach((cell, i) => {
        const number = matrix.flat()[i];
        cell.textContent = written(number);
        if (name === "weights") cell.style.setProperty("--weight", number.toFixed(3));
      });
    }
    inputs.forEach((input, i) => input !== typing && (input.value = x.flat()[i]));
    points.forEach((point, i) => {
      const [first, second] = x[i].map((part) => written(part, 2));
      point.setAttribute("aria-valuenow", x[i][0]);
      point.setAttribute("aria-valuetext", filled(data.position, { first, second }));
    });
    put(".point", x);
    all(".vector").forEach((node, i) => line(node, [0, 0], x[i]));
    put(".value", steps.value);
    put(".output", steps.output);
    all(".pair").forEach((node) => line(node, steps.value[node.dataset.from], steps.value[node.dataset.to]));

    const most = steps.weights[moved].indexOf(Math.max(...steps.weights[moved]));
    const [first, second] = steps.output[moved].map((part) => written(part, 2));
    const weight = written(steps.weights[moved][most], 2);
    const sentence = filled(data.says, { token: data.tokens[moved], key: data.tokens[most], weight, first, second });
    if (says.textContent !== sentence) says.textContent = sentence; // else it would be read aloud again
  };

  const move = (i, to, typing = null) => {
    x[i] = to.map((part) => Math.round(1000 * Math.min(data.limit, Math.max(-data.limit, part))) / 1000);
    render(i, typing);
  };

  inputs.forEach((input, n) => {
    const i = Math.floor(n / 2);
    input.addEventListener("input", () => {
      if (Number.isFinite(input.valueAsNumber)) move(i, x[i].map((part, j) => (j === n % 2 ? input.valueAsNumber : part)), input);
    });
    input.addEventListener("change", () => render(i)); // now that the reader is done, the field may show the clamped number
  });

  const arrows = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] };
  points.forEach((point, i) => {
    point.addEventListener("keydown", (event) => {
      if (!(event.key in arrows)) return;
      event.preventDefault(); // the page stays where it is
      move(i, x[i].map((part, j) => part + arrows[event.key][j]));
    });
    point.addEventListener("pointerdown", (event) => {
      event.preventDefault(); // no text is selected on the way
      point.focus({ preventScroll: true }); // else the plane could slip away under the pointer
      point.setPointerCapture(event.pointerId);
    });
    point.addEventListener("pointermove", (event) => {
      if (!point.hasPointerCapture(event.pointerId)) return;
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(point.ownerSVGElement.getScreenCTM().inverse());
      move(i, [at.x, -at.y].map((part) => Math.round(part * 20) / 20)); // in steps of 0.05
    });
  });

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => {
    x = structuredClone(data.x);
    render();
  });
  render(); // a browser may bring back what was typed before a reload
})(document.currentScript.closest("form"));
