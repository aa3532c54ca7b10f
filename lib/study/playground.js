// The static face of the attention playground: the same steps as `attention_steps` in playground.py, in the reader's browser.
((form) => {
  const data = JSON.parse(form.querySelector('script[type="application/json"]').textContent);
  const all = (selector) => [...form.querySelectorAll(selector)];
  const points = all(".point");
  const inputs = all("input");
  const valueTicks = [...form.querySelectorAll("svg")[1].querySelectorAll(".tick")];
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

  const written = (number, digits = 2) => (Math.round(number * 10 ** digits) / 10 ** digits || 0).toFixed(digits).replace("-", "−");
  const filled = (text, parts) => text.replace(/\{(\w+)\}/g, (_, name) => parts[name]);
  const put = (selector, vectors) =>
    all(selector).forEach((node, i) => node.setAttribute("transform", `translate(${vectors[i][0]} ${-vectors[i][1]})`));
  // As `unit_of`, `vector_marks` and `name_places` in playground_planes.py.
  const unitOf = (values) => {
    let unit = 1;
    while (Math.max(...values.flat().map(Math.abs)) > data.limit * unit) unit *= 2;
    return unit;
  };
  const vectorMarks = (vectors) => [1, 0.75, 0.5, 0.25].flatMap((share) => vectors.map((row) => row.map((part) => share * part)));
  const overlap = (one, other) => one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3];
  const distance = ([left, lower, right, upper], [a, b]) =>
    Math.hypot(Math.max(left - a, 0, a - right), Math.max(lower - b, 0, b - upper));
  const putNames = (selector, marks) => {
    const { edge, letter, line, mark } = data.plane;
    const taken = marks.map(([a, b]) => [a - mark, b - mark, a + mark, b + mark]);
    all(selector).forEach((group, i) => {
      const [a, b] = marks[i];
      const width = letter * [...data.tokens[i]].length;
      const sides = [0.1, -0.15, -0.45, 0.5, -0.85, 0.9, -1.25].flatMap((up) => [[0.25, up], [-0.25 - width, up]]);
      const tries = [...sides, [-width / 2, 0.3], [-width / 2, -0.6]];
      const boxes = tries.map(([left, up]) => [a + left, b + up, a + left + width, b + up + line]);
      const costs = boxes.map((box) => {
        const others = marks.filter((_, j) => j !== i).map((other) => distance(box, other));
        const blocked = Math.max(...box.map(Math.abs)) > edge || taken.some((other) => overlap(box, other));
        return distance(box, [a, b]) - Math.min(...others, 0.4) + (blocked ? 10 : 0);
      });
      const best = costs.indexOf(Math.min(...costs));
      taken.push(boxes[best]);
      const name = group.querySelector(".name");
      name.setAttribute("x", tries[best][0]);
      name.setAttribute("y", -tries[best][1]);
    });
  };
  const line = (node, [x1, y1], [x2, y2]) =>
    Object.entries({ x1, y1: -y1, x2, y2: -y2 }).forEach(([name, at]) => node.setAttribute(name, at));

  // `moved` is the word that the sentence speaks of; `typing` is the field that the reader is in, which is left alone.
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
      const [first, second] = x[i].map((part) => written(part));
      point.setAttribute("aria-valuenow", x[i][0]);
      point.setAttribute("aria-valuetext", filled(data.position, { first, second }));
    });
    put(".point", x);
    putNames(".point", vectorMarks(x));
    all(".vector").forEach((node, i) => line(node, [0, 0], x[i]));

    const unit = unitOf(steps.value);
    const [value, output] = [steps.value, steps.output].map((matrix) => matrix.map((row) => row.map((part) => part / unit)));
    put(".value", value);
    put(".output", output);
    putNames(".output", [...output, ...value]);
    all(".pair").forEach((node) => line(node, value[node.dataset.from], value[node.dataset.to]));
    valueTicks.forEach((node) => (node.textContent = written(node.dataset.at * unit, 0)));

    const most = steps.weights[moved].indexOf(Math.max(...steps.weights[moved]));
    const [first, second] = steps.output[moved].map((part) => written(part));
    const weight = written(steps.weights[moved][most]);
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
  if (form.clientWidth < 480) all("details").forEach((part) => (part.open = false)); // the weights are nearer to the planes
  render(); // a browser may bring back what was typed before a reload
})(document.currentScript.closest("form"));
