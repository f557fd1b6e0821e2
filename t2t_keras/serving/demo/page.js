const { maxCharacters, maxDocumentCharacters, modes, withTerms } = document.body.dataset;
const MODES = {
  sentence: { label: "Sentence", most: Number(maxCharacters), heading: "Best of the search" },
  document: { label: "Document", most: Number(maxDocumentCharacters) },
  sample: { label: "Sentence", most: Number(maxCharacters), heading: "Samples" },
};
const picture = new Picture();
const choices = new Choices(picture);
const words = new Words();
let asked = new AbortController();

/** Asks the server; throws an Error with words for the reader. */
async function ask(question, body, signal) {
  let response, answer;
  try {
    response = await fetch(`api/${question}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Error("The server does not answer: is it still running?");
  }
  try {
    answer = await response.json();
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Error(`The server answered with status ${response.status}.`);
  }
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

function complain(id, message) {
  element(id).textContent = message;
  element(id).hidden = !message;
}

function busy(is) {
  element("send").setAttribute("aria-disabled", is);
  element("send").textContent = is ? "Translating…" : "Translate";
  element("results").inert = is;
}

function mode() {
  return element("form").elements.mode.value;
}

async function translate() {
  const text = element("text").value;
  const chosen = mode();
  const { label, most } = MODES[chosen];
  const name = label.toLowerCase();
  const problem = !text.trim()
    ? `Type a ${name} first.`
    : [...text].length > most
      ? `The ${name} is too long: at most ${most.toLocaleString("en")} characters.`
      : "";
  complain("error", problem);
  if (problem) return;
  asked.abort();
  const { signal } = (asked = new AbortController());
  busy(true);
  try {
    const terms = element("terms")?.value ?? "";
    if (chosen === "document") {
      const { translation } = await ask("document", { text, terms }, signal);
      show(chosen, false);
      words.show(text, { text: translation });
      return;
    }
    const [question, more] =
      chosen === "sample" ? ["sample", settings()] : ["translate", { terms }];
    const { translations, truncated } = await ask(question, { text, ...more }, signal);
    show(chosen, truncated);
    busy(false);
    list(text, translations);
    await look(text, translations[0].text, signal);
  } catch (error) {
    if (!signal.aborted) complain("error", error.message);
  } finally {
    if (!signal.aborted) busy(false);
  }
}

/** What the fields of sampling say, as numbers; null for what is no number. */
function settings() {
  const fields = { seed: "seed", temperature: "temperature", top_p: "top-p" };
  const number = (id) => (element(id).value ? Number(element(id).value) : null);
  return Object.fromEntries(Object.entries(fields).map(([name, id]) => [name, number(id)]));
}

/** Shows the parts of an answer that a mode has. */
function show(chosen, truncated) {
  const isDocument = chosen === "document";
  element("truncated").hidden = !truncated;
  element("results").hidden = false;
  element("n-best-section").hidden = isDocument;
  element("attention-section").hidden = isDocument;
  element("translation").classList.toggle("document", isDocument);
  element("n-best-heading").textContent = MODES[chosen].heading;
}

function written(into, text) {
  into.textContent = text || "nothing";
  into.classList.toggle("empty", !text);
  return into;
}

/** Lists the translations; the chosen one's attention is shown. */
function list(text, translations) {
  words.show(text, translations[0]);
  const buttons = translations.map((translation, index) => {
    const { text: candidate, score } = translation;
    const figure = score.toFixed(3).replace("-", "−");
    const button = make(
      "button",
      { type: "button" },
      make("span", { className: "rank", textContent: index + 1 }),
      written(make("span", { className: "candidate", dir: "auto" }), candidate),
      make("span", { className: "score", textContent: figure, title: "score" }),
    );
    button.setAttribute("aria-pressed", index === 0);
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", other === button);
      asked.abort();
      asked = new AbortController();
      words.show(text, translation);
      look(text, candidate, asked.signal);
    });
    return button;
  });
  element("n-best").replaceChildren(...buttons.map((button) => make("li", {}, button)));
}

/** Shows the attention between a text and one of its translations. */
async function look(text, translation, signal) {
  let message = "";
  try {
    const attention = new Attention(await ask("align", { text, translation }, signal));
    element("picture").hidden = false;
    choices.show(attention);
  } catch (error) {
    if (signal.aborted) return;
    element("picture").hidden = true;
    message = error.message;
  }
  complain("attention-error", message);
}

function count() {
  const length = [...element("text").value].length;
  const { most } = MODES[mode()];
  const [found, limit] = [length, most].map((number) => number.toLocaleString("en"));
  element("count").textContent = `${found} of at most ${limit} characters`;
  element("count").classList.toggle("over", length > most);
}

/** Shows the keys to press. */
function press(id, keys) {
  const shown = keys.split(" ").map((key) => make("kbd", { textContent: key }));
  element(id).replaceChildren(...shown.flatMap((key) => [key, " "]));
}

/** Offers what the model can do, and sets the form up for what is chosen. */
function offer() {
  const chosen = mode();
  const [send, line] = chosen === "document" ? ["Ctrl Enter", "Enter"] : ["Enter", "Shift Enter"];
  element("text-label").textContent = MODES[chosen].label;
  element("sampling").hidden = chosen !== "sample";
  if (element("glossary")) element("glossary").hidden = !withTerms.split(" ").includes(chosen);
  press("send-key", send);
  press("break-key", line);
  count();
}

element("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (element("send").getAttribute("aria-disabled") !== "true") translate();
});
element("text").addEventListener("input", count);
element("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  if (mode() === "document" && !event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  element("form").requestSubmit();
});
for (const input of element("form").elements.mode) {
  input.parentElement.hidden = !modes.split(" ").includes(input.value);
  input.addEventListener("change", offer);
}
element("modes").hidden = !modes.includes(" ");
offer();
