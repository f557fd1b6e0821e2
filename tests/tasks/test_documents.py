"""Splitting documents into sentences, translating these, and putting them back."""

import itertools
import random
import re

import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras.errors import InputError
from t2t_keras.tasks.abbreviations import ABBREVIATIONS
from t2t_keras.tasks.documents import divide_long, split_sentences, translate_documents
from tests.tasks import tiny
from tests.tasks.in_capitals import in_capitals, longer_than

SENTENCES = {
    "en": [
        "He left.¦ She stayed!¦ Why?¦\n\nNobody knows…¦ Then it rained.",
        "Dr. Smith met Mr. J. R. R. Tolkien in the U.S. at 5 p.m. on Jan. 5.¦ It was late.",
        "See e.g. Fig. 3, No. 5 and pp. 12.¦ No.¦ Not me.",
        "It costs 3.14 at example.com at 12:30.¦\tHe asked “why?”¦  “Because.”¦ So…",
        '"Stop!" he said.¦ (It was over.)¦ [Nobody listened.]',
        "Well... maybe.¦ Yahoo! is a company.¦ So what?!¦ Wait...¦ What?",
        "Smith et al. (2004) see Eq. (3) in par. 8 and N°. 5.¦ Nobody et al.¦ They left.",
        "**He left.**¦ _She stayed._¦ Why?[a]¦ He left.[citation needed]¦ It, ca. 5.",
        "I mean . . . that she sleeps; he . . . . does.¦ Yes.",
        "See Sec. 3, Ch. 4 and ibid. 5.¦ It is approx. 7, a.k.a. J.-C. Dog.¦ Me, Inc.?",
    ],
    "de": [
        "Am 3. Oktober kam z. B. Prof. Dr. Kranz, d. h. der Chef, bzw. Frau Lenz.¦ Gut.",
        "Das kostet ca. 1.000 Euro.¦ „Wirklich?“¦ Ja, Nr. 7.",
    ],
    "fr": ["« Bonjour\u00a0!\u00a0»¦ « Ah ! »¦ M. Dupont et Mme. Durand sont là\u202f?¦ Oui."],
    "ru": ["Это г. Москва, т. е. столица.¦ Да.¦ Нет!"],
    "es": ["EE. UU. es grande.¦ Las FF. AA. duermen."],
    "el": ["Ο σκύλος κοιμάται;¦ Η κ. Άννα;¦ Ναι· όχι."],
    "zh": [
        "你好。¦今天天气怎么样？¦很好！¦「走吧。」¦3.5米，共2个．¦完",
        "她笑了。¦“真的吗？”¦他问。",
    ],
    "ja": ["これは本です。¦\u3000はい、そうです！", "円周率は３．１４です。¦終わり．¦次"],
    "hi": ["यह एक किताब है।¦ हाँ।"],
    "he": ["הכלב ישן.¦ היא ישנה."],
    "ka": ["მელა ხედავს.¦ ის სძინავს."],  # its letters have no case, though Unicode calls it lower
    "am": ["ውሻው ይተኛል።¦ እሷ ትተኛለች\u1367¦ አዎ።"],
    "hy": ["Շունը քնում է։¦ Նա քնում է։"],
    "fa": ["سگ می\u200cخوابد.¦ او می\u200cبیند؟"],
    "ar": ["هل أنت هنا؟¦ نعم."],
    "": [
        "Mr. Smith, Hr. Meier und M. Petit.¦ Ende.¦\r\nNeue Zeile¦\rund¦\u2028noch eine",
        "It was 1999.¦ Then it was May 3.¦ Nothing else.",
    ],
}
"""{language: documents, whose sentences ¦ divides, with the white space before each}"""

ODD = [
    b"",
    b" \t ",
    b"\n\n\r\n",
    b"\x00.\x00 A",
    b"a\xff. B\xe2\x82",
    b"...",
    b". . .",
    "\u202eאבג. דהו!\u202c\u2029مرحبا؟ نعم".encode(),
    "  \u3000 。。！\u0085\u2028".encode(),
    "e\u0301.\u0301 A\ufeff.\ufeff B".encode(),
    "A\U0010fffe\x00. B\U0010fffe".encode(),
    b"</b> <b> &amp; {x}.\v\f\x1c\x1e %s!",
]


def split(text, language=""):
    [row] = split_sentences(tf.constant([text]), language).to_list()
    return row


def texts_of(segments):
    return [segment.decode().strip() for segment in segments]


@pytest.mark.parametrize("language", SENTENCES)
def test_sentences_end_where_a_reader_says(language):
    key = language if language in ABBREVIATIONS else ""
    for text in SENTENCES[language]:
        found = split(text.replace("¦", ""), key)
        assert texts_of(found) == [sentence.strip() for sentence in text.split("¦")]


def test_ordinals_are_those_of_a_language():
    assert len(split("Am 3. Oktober kam er.", "de")) == 1
    assert len(split("It was May 3. Then he came.", "en")) == 2


def test_the_segments_of_any_text_are_the_text():
    rng = random.Random(0)
    fragments = [text.decode(errors="replace") for text in ODD]
    fragments += [*".!?。\n\u2028aB1)”» \u00a0", "\r\n", "Dr", "etc"]
    texts = ["".join(rng.choices(fragments, k=12)) for _ in range(300)]
    texts = [*ODD, *(text.encode() for text in texts)]
    for language in ("", "de"):
        rows = split_sentences(tf.constant(texts), language).to_list()
        for text, segments in zip(texts, rows, strict=True):
            assert b"".join(segments).decode() == text.decode("utf-8", "replace")
    assert split_sentences(tf.constant([], tf.string)).to_list() == []
    assert split_sentences(["A. B."]).to_list() == split_sentences(tf.constant(["A. B."])).to_list()
    for single in ("A dog.", tf.constant("A dog."), None):
        with pytest.raises(InputError, match="texts is "):
            split_sentences(single)


def divided(texts, limit):
    segments = tf.RaggedTensor.from_row_lengths(tf.constant(texts), [len(texts)])
    return [part.decode() for part in divide_long(segments, longer_than(limit)).to_list()[0]]


def test_a_long_sentence_is_divided_at_clauses_then_spaces_then_characters():
    clauses = "When it rains in spring, the old river rises; nobody crosses it then."
    assert divided([clauses], 45) == [
        "When it rains in spring, ",
        "the old river rises; nobody crosses it then.",
    ]
    assert divided(["Some seven hundred and ninety-two words are here"], 30) == [
        "Some seven hundred and ",
        "ninety-two words are here",
    ]
    assert divided(["他们在河边，看见了一只白色的大鸟"], 12) == [
        "他们在河边，",
        "看见了一只白色的大鸟",
    ]
    assert divided(["e\u0301" * 8], 6) == ["e\u0301e\u0301"] * 4  # no mark without its letter
    assert divided(["a" + "\u0301" * 9], 5) == ["a" + "\u0301" * 4, "\u0301" * 5]


def test_parts_of_a_divided_sentence_are_short_and_the_whole():
    texts = [
        "Short.",
        " x" * 100 + "\n",
        "x" * 1_000,
        "1,000.5, " * 50,
        "字" * 99,
        "a" + " " * 99 + "b",
    ]
    for limit in (1, 7, 40):
        parts = divided(texts, limit)
        assert "".join(parts) == "".join(texts)
        assert max(len(part.strip()) for part in parts) <= limit


class Stub:
    """Translates sentences to <sentences>, and counts them."""

    def __init__(self, form="<{}>"):
        self.form = form
        self.batches = []

    def __call__(self, sentences):
        self.batches.append(sentences.numpy().tolist())
        return tf.constant([self.form.format(x.decode()) for x in self.batches[-1]], tf.string)


def translated(texts, form="<{}>", limit=1_000, **options):
    found = translate_documents(
        tf.constant(texts, tf.string), Stub(form), longer_than(limit), **options
    )
    return [text.decode() for text in found.numpy()]


UPPER = r"""
⟦<p class="a">⟧The dog.⟦<p>⟧¦She sees.⟦</p>\n<li>⟧¦A⟦</li><li>⟧¦B c⟦</li>⟧
The dog.⟦<br>⟧¦She sees.⟦<hr/>⟧¦A⟦<td>⟧¦B⟦</td>⟧¦12⟦<h1>⟧¦C d⟦</h1><dt>⟧¦E⟦</dt><section>⟧¦F
⟦<details open><summary>⟧The dog⟦</summary>⟧¦She sees.⟦</details>&lt;p&gt;⟧¦He sees.⟦&lt;/p&gt;⟧¦It.
The dog.⟦&nbsp;&nbsp;⟧¦She sees.⟦<sup>1</sup>⟧ ¦He sees.⟦[2]⟧ ¦It sees.⟦&#160;⟧¦A ⟦&emsp;⟧ b.
⟦<span>⟧The dog.⟦</span><span>⟧¦She.⟦</span>⟧ ⟦<b>⟧¦He.⟦</b>⟧¦It ⟦<i>⟧sees.⟦</i>⟧ ¦3.⟦<b>⟧1⟦</b>⟧
The dog⟦<sup>⟧†⟦</sup>⟧ sees.† ¦She sleeps.‡ ¦She said, \"The dog sees.\" ¦He sleeps.
The dog doesn&#39;t see the king&rsquo;s d&ouml;g.⇒The dog doesn't see the king’s dög.
Wo<b>man</b> and <i>T</i>he d<wbr>og.⇒⟦<b>⟧Woman⟦</b>⟧ and ⟦<i>⟧The⟦</i>⟧ dog⟦<wbr>⟧.
Hy&shy;phen, AT&amp;T &quot;it&quot;.⇒Hyphen, AT⟦&amp;⟧T "it".
The ⟦&lt;b&gt;⟧dog⟦&lt;/b&gt;⟧ sees.
A⟦&nbsp;⟧is⟦&nbsp;⟧&mdash; a ⟦<a>⟧b⟦</a><a>⟧c⟦</a>⟧.⇒A⟦&nbsp;⟧is⟦&nbsp;⟧— a ⟦<a>⟧b⟦</a><a>⟧c⟦</a>⟧.
It is 20⟦&deg;⟧C and 5⟦&nbsp;⟧% of ⟦&euro;⟧7, a dog⟦&trade;⟧; R&D, a < b
⟦<b>⟧The⟦</b>⟧ ⟦<i>⟧dog⟦</i>⟧, ⟦<u>⟧she⟦</u>⟧ ⟦<button>⟧is⟦</button>⟧ ⟦<a>⟧ it⟦</a>⟧ U.⟦<b>⟧S.⟦</b>⟧
Dog<b>s</b> <i>a</i>b <b>O</b>n ⟦{a}/{b}⟧.⇒⟦<b>⟧Dogs⟦</b>⟧ ⟦<i>⟧ab⟦</i>⟧ ⟦<b>⟧On⟦</b>⟧ ⟦{a}/{b}⟧.
⟦<a>⟧The⟦</a>⟧ » ⟦<b>⟧dog⟦</b>⟧/⟦<b>⟧d⟦</b>⟧ and ⟦<kbd>⟧Ctrl⟦</kbd>⟧+⟦<kbd>⟧C⟦</kbd>⟧ !
⟦<a (click)="go('x > y')" [class.a]="b">⟧The⟦</a>⟧ ⟦<a @click="a > b" v-if="a < 3">⟧dog⟦</a>⟧ sees.
⟦<!--[if !IE]><!-->⟧The dog⟦<!--<![endif]-->⟧ sees ⟦<input value="a > b">⟧ ⟦<img alt='a>b'>⟧.
⟦<1/>⟧ The ⟦<x-y a={b > c}>⟧dog⟦</x-y>⟧ sees ⟦<Trans i18nKey="a.b">⟧it⟦</Trans>⟧, ⟦<0>⟧A⟦</0>⟧.
⟦<script>var x;</script><style>p{}</style><pre>a\n b</pre>⟧The ⟦<code>a < x()</code>⟧ dog.
The dog (⟦https://x.org/a_(b)⟧) sees ⟦{a}⟧ ("⟦{b}⟧"), ⟦{c}⟧and 5⟦{d}⟧e.
See ⟦{n, plural, one {# dog} other {# dogs}} <!-- a -> b -->⟧ now. ¦⟦%1⟧ b ⟦:count⟧.
⟦{n, plural, =0 {no dogs} one {a '{' dog} other {# dogs}}⟧ and ⟦{x}⟧ see ⟦{d, date, ::yMMMd}⟧.
⟦{0,choice,0#no dogs|1#one dog|1<{0} dogs}⟧ and ⟦{ $n -> [one] a dog *[other] dogs }⟧ see.
⟦{{PLURAL:$1|dog|dogs}}⟧ of ⟦[[User:$2|$2]]⟧ see the ⟦$COUNT$⟧ dogs of ⟦$user_name$⟧.
⟦{{#each dogs}}⟧The dog ⟦{{this.name}}⟧ sees⟦{{else}}⟧ nothing⟦{{/each}}⟧.
The ⟦%1$#@dogs@⟧ see ⟦%.*f⟧ and ⟦%,d⟧ at ⟦%1$tY⟧. ¦On ⟦%Y-%m-%d⟧ at ⟦%H:%M⟧ she sees ⟦%d⟧%.
Hello ⟦$user->name⟧ and ⟦$user.name⟧, the dog sees ⟦$items[0]⟧ ⟦:thumbs_up:⟧.
⟦😀⟧ The dog ⟦😀⟧ sees.⟦👍🏽⟧ ¦She sleeps ⟦👍🏽🎉⟧! ¦⟦▶️⟧ He ⟦☺️⟧ sees ⟦↗️⟧ now ⟦ℹ️⟧.
⟦https://x.org/Dog_(film)_(2022)⟧ and ⟦http://u:p@[::1]:80/a⟧ see ⟦mailto:a@b.org?subject=x%20y⟧.
The dog sees ⟦https://x.org/a⟧… ¦She sees ⟦https://x.org/#/b⟧! ¦He sees **⟦https://x.org/c⟧**.
Look at [the dog](⟦https://x.org/d⟧) 【⟦https://x.org/f⟧】、⟦http://x.org/g⟧。¦Now ⟦h@x.org⟧，she.
⟦1. ⟧The dog.\n⟦2) ⟧¦She.\n⟦- ⟧¦A\n7\n⟦00:00:33,080 --> 00:00:36,920⟧\n¦It sees.\n2026-11-27\t5\t¦b
⟦[00:12.30]⟧The dog.\n⟦[01:02:03] ⟧¦She sees.\n⟦• ⟧¦He.\n⟦☐ ⟧¦It.\n⟦١. ⟧¦الكلب ينام.
| 1 | the dog | 3.5 |\n|---|---|---|\n⟦&mdash;&#8212; &copy;⟧ 12 ⟦&times;⟧ 3\n¦A\n12:30\n⟦{a}: {b}⟧
"""
"""Documents whose translations have capital letters outside of ⟦spans⟧, or what stands behind ⇒; ¦
stands between sentences."""


def letters_of(text):
    return re.sub(r"[\W\d_]", "", text)


def test_nothing_of_a_document_is_lost():
    rows = [re.sub(r"\\([nt])", lambda x: "\n\t"["nt".index(x[1])], x) for x in UPPER.split("\n")]
    rows = [row.partition("⇒") for row in rows]
    found, asked = in_capitals([re.sub("[⟦⟧¦]", "", text) for text, *_ in rows], limit=200)
    assert not re.search("[\ue000-\ue0ff]|&#?\\w+;|</?\\w|[.!?] [A-Z]", b"|".join(asked).decode())
    for translation, (text, _, wanted) in zip(found, rows, strict=True):
        parts = re.split("[⟦⟧]", (wanted or text).replace("¦", ""))
        parts[::2] = [part.upper() for part in parts[::2]]
        assert translation == "".join(parts)
    # A model reads all words, in their sentences, and nothing of a span.
    words = [re.sub("⟦.*?⟧", "", wanted or text, flags=re.S) for text, _, wanted in rows]
    sentences = {letters_of(part) for text in words for part in text.split("¦")} - {""}
    assert {letters_of(text.decode()) for text in asked} == sentences


def test_what_is_between_sentences_is_unchanged():
    texts = [
        "  One.  Two!\n\n\tThree \r\n \u00a0Four.\rFive\u2028Six.\n",
        "",
        " \n ",
        "- \n* * *\n<b>",
        "One. Two.",
        "\ufeffOne.\n",
        "\ufeff\n",
    ]
    assert translated(texts) == [
        "  <One.>  <Two!>\n\n\t<Three> \r\n \u00a0<Four.>\r<Five>\u2028<Six.>\n",
        *texts[1:4],
        "<One.> <Two.>",
        "\ufeff<One.>\n",
        "\ufeff\n",
    ]
    assert translated([]) == []
    [odd] = translated([b"A\xff. B\xe2\x82.\n"])
    assert odd == "<A\ufffd.> <B\ufffd.>\n"


def test_sentences_without_spaces_get_them_in_a_language_that_has_them():
    text = "你好。再见！\n完。"
    assert translated([text], "Word.") == ["Word. Word.\nWord."]
    assert translated([text], "言葉。") == ["言葉。言葉。\n言葉。"]
    for opening in ("<b>", "{name}", "“", "`x`"):  # of the next sentence
        [found] = translated([f"你好。{opening}再见。"])
        assert found == f"<你好。> <{opening}再见。>".replace("<<b>", "<b><")


def test_batches_are_bounded_sorted_and_without_repeats():
    rng = random.Random(1)
    sentences = [f"S{'o' * rng.randrange(50)} {n}." for n in range(150)]
    stub = Stub()
    texts = [" ".join(sentences[:100]), " ".join(sentences[50:])]
    translate_documents(tf.constant(texts), stub, longer_than(1_000))
    assert [len(batch) for batch in stub.batches] == [64, 64, 22]
    lengths = [len(text) for text in itertools.chain(*stub.batches)]
    assert lengths == sorted(lengths, reverse=True)


def test_sentences_in_languages_are_one_batch_each_and_no_batch_is_empty():
    batches = []

    def translate(sentences, sources, targets):
        batches.append(len(sentences))
        return tf.strings.join([sources, targets, sentences], ":")

    text = " ".join(f"No {n}." for n in range(70))
    languages = tf.constant(["en", "en"]), tf.constant(["de", "fr"])
    found = translate_documents(
        tf.constant([text, text]), translate, longer_than(1_000), inputs=languages
    )
    for translation, code in zip(found.numpy(), ("de", "fr"), strict=True):
        assert translation.decode() == " ".join(f"en:{code}:No {n}." for n in range(70))
    assert batches == [64, 64, 12]


@pytest.mark.slow
def test_a_document_of_100_000_characters():
    texts = ["The dog sees a cat. " * 5_000, "x" * 100_000]
    stub = Stub()
    found = translate_documents(tf.constant(texts), stub, longer_than(200)).numpy()
    assert found[0].decode() == "<The dog sees a cat.> " * 5_000
    assert found[1].decode().replace("> <", "") == f"<{texts[1]}>"  # a divided word gets spaces
    assert max(len(batch) for batch in stub.batches) <= 64


def test_a_limit_that_would_drop_a_character_is_refused():
    short = tiny.translator(max_source_length=6)
    with pytest.raises(
        InputError, match=r"sources have at most 6 tokens \(max_source_length, .* at least 7"
    ):
        short.documents(["a"])
    least = tiny.translator(max_source_length=7)
    assert not least.sources.encode(tf.constant(["\U00012000"])).truncated.numpy().any()


@pytest.mark.slow
def test_documents_are_translated_as_their_sentences(caplog):
    translator = tiny.translator(beam_size=2, max_source_length=60)
    gaps = [" ", "  ", "\n", "\xa0", "\t ", "\r\n\r\n", "\u2028", ""]
    lines = [*tiny.LINES, "A dog.", "The <b>dog</b>.", *tiny.LINES[:2]]
    translations = translator([line.replace("<b>", "").replace("</b>", "") for line in lines])
    [found] = translator.documents(["".join(itertools.chain(*zip(lines, gaps, strict=True)))])
    assert found.count("<b>") == found.count("</b>") == 1
    found, translations = (re.sub("</?b>", "", x) for x in (found, "|".join(translations)))
    expected = "".join(itertools.chain(*zip(translations.split("|"), gaps, strict=True)))
    assert re.sub(" +", " ", found) == re.sub(" +", " ", expected)
    # A sentence beyond the limit is divided, and not truncated.
    clauses = [f"the dog number {n}, " for n in range(20)]
    assert translator.sources.encode(tf.constant(["".join(clauses)])).truncated.numpy().all()
    [found] = translator.documents(["\n" + "".join(clauses)])
    # 20 clauses in parts of 2 and 3 of at most 59 tokens
    sizes = [2, 3] * 4
    parts = [clauses[sum(sizes[:n]) : sum(sizes[: n + 1])] for n in range(8)]
    expected = translator(["".join(part).strip() for part in parts])
    assert found == "\n" + " ".join(expected) + " "
    assert not caplog.records
    assert translator.documents(["", " \n"]) == ["", " \n"]
    with pytest.raises(t2t.InputError, match=r"texts is the string 'One\.': give a list"):
        translator.documents("One.")
