const { model, sentence, translation, maps } = JSON.parse(element("data").textContent);
const picture = new Picture();
const choices = new Choices(picture);
const attentions = maps.map((map) => new Attention(map));

element("model").textContent = element("model").title = model;
element("sentence").textContent = sentence;
element("translation").textContent = translation;
element("kinds").replaceChildren(
  ...maps.map(({ title }, index) => {
    const last = index === maps.length - 1;
    const input = make("input", { type: "radio", name: "kind", value: index, checked: last });
    input.addEventListener("change", () => choices.show(attentions[index]));
    return make("label", {}, input, make("span", { textContent: title }));
  }),
);
choices.show(attentions.at(-1));
