const NAMES = { "</s>": "end", "<s>": "start", "<unk>": "unknown", "<pad>": "padding" };

/**
 * A piece as a reader wants it: ▁ begins a word, ## goes on in one, bytes and marks go by name.
 * Gives {text, starts: whether a word begins, named: whether text is a name and not its letters}.
 */
function readable(piece, index) {
  const byte = /^<0x([0-9A-F]{2})>$/.exec(piece);
  if (byte) return readableByte(byte[1]);
  if (Object.hasOwn(NAMES, piece)) return { text: NAMES[piece], starts: true, named: true };
  const starts = index === 0 || piece.startsWith("▁");
  const letters = piece.replace(/^▁|^##(?=.)/, "").replaceAll("▁", " ");
  if (/^[\p{Cc}\p{Cf}]+$/u.test(letters)) return { text: codes(letters), starts, named: true };
  if (!letters.trim()) return { text: "space", starts, named: true };
  return { text: letters.replace(/\p{Cc}/gu, "\ufffd"), starts, named: false };
}

/** A byte outside the vocabulary: the letter if it is one by itself, else its two digits. */
function readableByte(digits) {
  const letter = String.fromCodePoint(parseInt(digits, 16));
  const isLetter = /^[!-~]$/.test(letter);
  return { text: isLetter ? letter : digits, starts: false, named: !isLetter };
}

/** Characters that show nothing, by number. */
function codes(characters) {
  const code = (c) => `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
  return [...characters].map(code).join(" ");
}

/**
 * Attention of target pieces to source pieces, looked at in one layer and head or in a mean of
 * them. `names` are what the reader calls the two sides.
 */
class Attention {
  constructor({ source, target, layers, heads, weights, names = ["source", "translation"] }) {
    Object.assign(this, { layers, heads });
    [this.sourceName, this.targetName] = names;
    this.source = source.map(readable);
    this.target = target.map(readable);
    const bytes = Uint8Array.from(atob(weights), (c) => c.charCodeAt(0));
    this.all = new Uint16Array(bytes.buffer);
  }

  /** Chooses a layer and a head; -1 is the mean over them. */
  choose(layer, head) {
    const size = this.target.length * this.source.length;
    const chosen = (choice, count) => (choice < 0 ? [...Array(count).keys()] : [choice]);
    const sum = new Float64Array(size);
    const layers = chosen(layer, this.layers);
    const heads = chosen(head, this.heads);
    for (const l of layers) {
      for (const h of heads) {
        const start = (l * this.heads + h) * size;
        for (let i = 0; i < size; i++) sum[i] += this.all[start + i];
      }
    }
    const scale = 1 / (65535 * layers.length * heads.length);
    this.weights = sum.map((value) => value * scale);
    this.most = this.weights.reduce((a, b) => Math.max(a, b), 0);
  }

  weight(target, source) {
    return this.weights[target * this.source.length + source];
  }
}
