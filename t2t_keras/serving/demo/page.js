const MAX_CHARACTERS = Number(document.body.dataset.maxCharacters);
const picture = new Picture();
const choices = new Choices(picture);
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

async function translate() {
  const text = element("text").value;
  const problem = !text.trim()
    ? "Type a sentence first."
    : [...text].length > MAX_CHARACTERS
      ? `The sentence is too long: at most ${MAX_CHARACTERS.toLocaleString("en")} characters.`
      : "";
  complain("error", problem);
  if (problem) return;
  asked.abort();
  const { signal } = (asked = new AbortController());
  busy(true);
  try {
    const { translations, truncated } = await ask("translate", { text }, signal);
    element("truncated").hidden = !truncated;
    element("results").hidden = false;
    busy(false);
    list(text, translations);
    await look(text, translations[0].text, signal);
  } catch (error) {
    if (!signal.aborted) complain("error", error.message);
  } finally {
    if (!signal.aborted) busy(false);
  }
}

function written(into, text) {
  into.textContent = text || "nothing";
  into.classList.toggle("empty", !text);
  return into;
}

/** Lists the translations; the chosen one's attention is shown. */
function list(text, translations) {
  written(element("translation"), translations[0].text);
  const buttons = translations.map(({ text: candidate, score }, index) => {
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
  const [found, most] = [length, MAX_CHARACTERS].map((number) => number.toLocaleString("en"));
  element("count").textContent = `${found} of at most ${most} characters`;
  element("count").classList.toggle("over", length > MAX_CHARACTERS);
}

element("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (element("send").getAttribute("aria-disabled") !== "true") translate();
});
element("text").addEventListener("input", count);
element("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  element("form").requestSubmit();
});
count();
