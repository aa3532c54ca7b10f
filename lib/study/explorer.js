// The static face of one explorer: which frame do the controls ask for? No dependencies, no global names.
((form) => {
  const data = JSON.parse(form.querySelector('script[type="application/json"]').textContent);
  const controls = [...form.querySelectorAll("[data-stride]")];
  const picture = form.querySelector("img");
  const says = form.querySelector(".says");

  const show = () => {
    let frame = 0;
    controls.forEach((control, i) => {
      const input = control.querySelector("input:checked") ?? control.querySelector("input");
      frame += Number(input.value) * Number(control.dataset.stride);
      if (input.type === "range") {
        const label = data.labels[i][input.value];
        control.querySelector("output").value = label;
        input.setAttribute("aria-valuetext", label);
      }
    });
    picture.src = data.pictures[frame];
    picture.alt = data.texts[frame];
    if (says.textContent !== data.texts[frame]) says.textContent = data.texts[frame]; // else it would be read aloud again
  };

  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  show(); // a browser may bring back a control's position after a reload
})(document.currentScript.closest("form"));
