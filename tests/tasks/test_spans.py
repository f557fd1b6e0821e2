"""Spans: which parts of a text are not translated, how they are marked, and that they come back."""

import random
import time

import pytest
import tensorflow as tf

from t2t_keras.data.text_parts import split_by_pattern
from t2t_keras.errors import InputError
from t2t_keras.tasks import spans
from t2t_keras.tasks.document_lines import join_lines
from t2t_keras.tasks.search_settings import SpanPattern
from t2t_keras.tasks.spans import mask, unmask

NAMES = {
    "B": spans.BLOCK,
    "I": spans.INLINE,
    "O": spans.OPENING,
    "S": spans.SPACE,
    "G": spans.GAP,
    "C": spans.CHARACTER,
    "W": spans.WORD,
}
MASKED = {
    # Software: printf, Python, Qt, ICU, i18next, Rails, Django, ERB, PHP, Angular, Laravel, Symfony
    "Hello {name}, {{ user.age }} ${x} #{y} %(count)s.": "Hello ⟦W⟧, ⟦W⟧ ⟦W⟧ ⟦W⟧ ⟦W⟧.",
    "%s has %1$d of %-5.2f%% and %lu, %@.": "⟦W⟧ has ⟦W⟧ of ⟦W⟧⟦W⟧ and ⟦W⟧, ⟦W⟧.",
    "100% sure, 50 % of it, 5 %, 3%, 12:30, $5.99, $20.": None,
    "%1, %n and %L2; $1 $NAME :count __count__ %count% %{n}": "⟦W⟧, ⟦W⟧ and ⟦W⟧; "
    + "⟦W⟧ ⟦W⟧ ⟦W⟧ ⟦W⟧ ⟦W⟧ ⟦W⟧",
    "<%= x %> <?= $x ?> $t(a.b) {{{raw}}} ${users[{i}]} @:a.b [[x]]": " ".join(["⟦W⟧"] * 7),
    "You have {n, plural, one {# dog} other {{x, select,\n a {b}\n}}}.": "You have ⟦W⟧.",
    "{a {b {c {d {e {f}}}}}} {{ a|b:'{' }} {\"}\"} { {": "⟦W⟧ ⟦W⟧ ⟦W⟧ { {",
    "%s%s %d%% %%a%% @name @:(a.b) @.c:d. `x{` ``y``": "⟦W⟧⟦W⟧ ⟦W⟧⟦W⟧ ⟦W⟧ ⟦W⟧ ⟦W⟧ ⟦W⟧. ⟦W⟧ ⟦W⟧",
    "{% if x %}a{% endif %} {{#if y}}b{{/if}} <% z %>": "⟦I⟧a⟦I⟧ ⟦I⟧b⟦I⟧ ⟦B⟧",
    "The <0>old <Link>dog</Link></0>, <x id='1'/>A.\\nB.": "The ⟦O⟧old ⟦O⟧dog⟦I⟧⟦I⟧, ⟦I⟧A.⟦B⟧B.",
    # Markup
    "<p>A <b>b</b><br/><wbr><P><my-a>c</my-a><para>": "⟦B⟧A ⟦O⟧b⟦I⟧⟦B⟧⟦I⟧⟦B⟧⟦O⟧c⟦I⟧⟦B⟧",
    "<a title='x > y' b=\"c>\">d</a><i>e</i>": "⟦O⟧d⟦G⟧e⟦I⟧",
    "<!-- a -> b --><!--[if IE]><p>x</p><![endif]--><![if !IE]>": "⟦I⟧⟦I⟧⟦B⟧",
    "<!--><!---><!-- a --!><!-- b <p>c <?php d": "⟦I⟧⟦I⟧⟦I⟧⟦B⟧ b ⟦B⟧c ⟦B⟧ d",
    "<xliff:g id='a'>b</xliff:g> <#if x>c</#if><%# d > e %><? echo $f ?>": "⟦O⟧b⟦I⟧ ⟦I⟧c⟦I⟧⟦I⟧⟦W⟧",
    "<!DOCTYPE html><?xml version='1'?><?php if (a > b) ?><![CDATA[a]]>": "⟦B⟧⟦B⟧⟦B⟧⟦B⟧a⟦B⟧",
    "<script>a < b</script><STYLE>b{}</STYLE><pre>a\nb</pre><code>f()</code>": "⟦B⟧⟦B⟧⟦B⟧⟦W⟧",
    "a.<sup>1</sup><sup><a href='#'>[2]</a></sup>[3] 1<sup>st</sup>": "a.⟦I⟧⟦I⟧⟦I⟧ 1⟦O⟧st⟦I⟧",
    "a < b > c & d; x<y": None,
    # Entities
    "king&#39;s doesn&rsquo;t &uuml;b&#x65;r &#150;": "king⟦C⟧'s doesn⟦C⟧’t ⟦C⟧üb⟦C⟧er ⟦C⟧–",
    "&nbsp;&#160;&copy; &lt; &foo; &amp;lt; &#0; &#x110000;": "⟦S⟧⟦S⟧" + "⟦W⟧ " * 5 + "⟦W⟧",
    "&lt;b&gt;a&lt;/b&gt;&lt;/li&gt;&lt;p class=x&gt;": "⟦I⟧a⟦I⟧⟦B⟧",
    "a &lt;br&gt; b &lt;hr/&gt; c &lt;d e&gt;": "a ⟦I⟧ b ⟦I⟧ c ⟦W⟧d e⟦W⟧",
    # Addresses
    "(https://example.com/a?b=c#d), www.example.org. jo+x@mail.example.com!": "(⟦W⟧), ⟦W⟧. ⟦W⟧!",
    "https://x.org/Dog_(animal). HTTPS://X.ORG/?a=[1]&amp;b=2, Www.x.org/a.": "⟦W⟧. ⟦W⟧, ⟦W⟧.",
    "https://x.org/a&nbsp;b https://x.org/a&lt;b ftp://x.org/it's/": "⟦W⟧⟦S⟧b ⟦W⟧⟦W⟧b ⟦W⟧",
    "Amazon.com müller.de x.org/ example.co.uk end.The and.x": "⟦W⟧ ⟦W⟧ ⟦W⟧ ⟦W⟧ end.The and.x",
    "看https://x.org/a。好（https://x.org）请写信给jo@x.org。": "看⟦W⟧。好（⟦W⟧）请写信给⟦W⟧。",
    "\"o'brien@x.org\" 'jo@müller.de' mu\u0308ller@x.org иван@почта.рф": "\"⟦W⟧\" '⟦W⟧' ⟦W⟧ ⟦W⟧",
    "<https://x.org> mailto:jo@x.org tel:+1-5 x.org/a, x.com. a.The": "⟦W⟧ " * 3
    + "⟦W⟧, ⟦W⟧. a.The",
    # Markdown
    "It sees `f('a')`, `it's` and ``a`b``; `a' and `b'": "It sees ⟦W⟧, ⟦W⟧ and ⟦W⟧; `a' and `b'",
    "`` `a` `` and ``b`` c, ``d'' and ``e''": "⟦W⟧ and ⟦W⟧ c, ``d'' and ``e''",
    "A.\n\n```py\n# B\n```\n\n~~~~\n~~~\n~~~~ \r\nC\r\n```\r\nd": "A.\n\n⟦B⟧\n\n⟦B⟧\nC\r\n```\r\nd",
    "- ```\r\n  a\r\n  ```\r\n> ````\n> ```\n> ````\n- b": "⟦B⟧\n⟦B⟧\n⟦B⟧b",
    "[a](../b/c.md#d), ![e](f.png \"g h\") [![i](j)](k(l)) [m][n] [o](<p q>)": "⟦O⟧a⟦I⟧, ⟦O⟧e⟦I⟧ "
    + "⟦O⟧⟦O⟧i⟦I⟧⟦I⟧ ⟦O⟧m⟦I⟧ ⟦O⟧o⟦I⟧",
    "*a* **b *c*** (_d e_) 2 * 3 * 4 f*g*h i_j_k l* m* *.n *.o": "⟦O⟧a⟦I⟧ **b ⟦O⟧c⟦I⟧ "
    + "(⟦O⟧d e⟦I⟧) 2 * 3 * 4 f*g*h i_j_k l* m* *.n *.o",
    "**a**b [c [d] e](f) [x [1] [g](h)": "⟦O⟧a⟦I⟧b ⟦O⟧c [d] e⟦I⟧ [x ⟦I⟧ ⟦O⟧g⟦I⟧",
    "**[a](b)** __c__ https://x.org/_d_/e": "⟦O⟧⟦O⟧a⟦I⟧⟦I⟧ ⟦W⟧ ⟦W⟧",
    "这是**粗体**文字。注意：**不要**。体积=长*宽*高，王*明、李*华。": "这是⟦O⟧粗体⟦I⟧文字。注意："
    + "⟦O⟧不要⟦I⟧。体积=长*宽*高，王*明、李*华。",
    "A __very important__ note, ~~old~~ price, __count__. re**quire**d": "A ⟦O⟧very important⟦I⟧ "
    + "note, ⟦O⟧old⟦I⟧ price, ⟦W⟧. re**quire**d",
    "text](docs/page.md#part) and a](b c)": "text⟦I⟧ and a](b c)",
    "See [license][] or [a b][c] and `x[n][]`.": "See ⟦W⟧ or ⟦O⟧a b⟦I⟧ and ⟦W⟧.",
    "[a]{1} ![b]{2} a[1](see c) [sic] (d)": "⟦O⟧a⟦I⟧ ⟦O⟧b⟦I⟧ a⟦I⟧(see c) [sic] (d)",
    "A.[^1]\n[^1]: B.\n[c]: ./d 'e'\n[f]: G.": "A.⟦I⟧\n⟦B⟧B.\n⟦B⟧\n[f]: G.",
    "---\na: b\nc:\n  - d\n---\nE": "⟦B⟧\nE",
    "---\nA b.\n---\nC": None,
    # Elements that are not translated, empty ones, inline tags of OmegaT, TMX and WebVTT
    "<p TRANSLATE=no>A <p>b</p></p><p class='x notranslate'>C</p>d": "⟦B⟧d",
    "<string translatable=\"false\">a</string> @string/b, @c-d/e.": "⟦B⟧ ⟦W⟧, ⟦W⟧.",
    "<a translate='no'>b</a> c <p title='translate=no'>d</p>": "⟦W⟧ c ⟦B⟧d⟦B⟧",
    "<br translate=no>a<p translate=no>b<i>c</i> <p translate='yes'>d": "⟦B⟧a⟦B⟧⟦O⟧c⟦I⟧ ⟦B⟧d",
    "<svg class='i'/>a<svg>b</svg><math />c<SVG/>d<code/>e</code>": "⟦I⟧a⟦I⟧⟦I⟧c⟦I⟧d⟦I⟧e⟦I⟧",
    "<f0>a</f0> <g1/> <hi>b</hi> <c.d>e</c> <lang en>f</lang> <h1>g": "⟦O⟧a⟦I⟧ ⟦I⟧ ⟦O⟧b⟦I⟧ "
    + "⟦O⟧e⟦I⟧ ⟦O⟧f⟦I⟧ ⟦B⟧g",
    "WEBVTT\r\nA: b\r\n\r\n1\r\n": "⟦B⟧\n\r\n1\r\n",
    "WEBVTT a\nB: c\n\nd<00:00:01.040><c> e</c>": "⟦B⟧\n\nd⟦I⟧⟦O⟧ e⟦I⟧",
    # Drupal, Maketext, reStructuredText, BBCode, TeX, ASS
    "%aa-b !a-b @a-b %s-like": "⟦W⟧ ⟦W⟧ ⟦W⟧ ⟦W⟧-like",
    "%name !name [_1] [*,_2,a,b] |version| %d!": "⟦W⟧ ⟦W⟧ ⟦W⟧ ⟦W⟧ ⟦W⟧ ⟦W⟧!",
    "Hey!You, 5%off a|b|c | d | |e|f|": None,
    "\\(x\\) \\(a b\\) \\hbar c.\\hD\\h e": "⟦W⟧ \\(a b\\) ⟦W⟧ c.⟦S⟧D⟦S⟧ e",
    "$x^2$ $$a\nb$$ \\(c_1\\) $5 and $10, $a [b]d[/b]": "⟦W⟧ ⟦W⟧ ⟦W⟧ ⟦W⟧ and $10, ⟦W⟧ ⟦O⟧d⟦I⟧",
    "A.\\NB.\\nC {\\i1}d{\\i0}": "A.⟦B⟧B.⟦B⟧C ⟦I⟧d⟦I⟧",
    # Pictures, labels, the marks themselves
    "😀 a 👩‍👩‍👧 🇩🇪 1️⃣ ✓ → ©": "⟦I⟧ a ⟦I⟧ ⟦I⟧ ⟦I⟧ ⟦I⟧ → ©",
    "1. a\n (2) b\n- [x] c\n## d\n3 e - f": "⟦B⟧a\n⟦B⟧b\n⟦B⟧c\n⟦B⟧d\n3 e - f",
    "> - a\n> > b\n> ## c\n!!! note 'd'\n::: tip\n> [x] e\n!!! so": "⟦B⟧a\n⟦B⟧b\n⟦B⟧c\n"
    + "⟦B⟧ 'd'\n⟦B⟧\n⟦B⟧e\n!!! so",
    "00:33.080 --> 00:36,920 align:start\na --> b": "⟦B⟧\na --> b",
    "A \ue000\ue0ff of the text itself": "A ⟦W⟧⟦W⟧ of the text itself",
    "": None,
}  # fmt: skip
"""{text: it with its marks}, None where it has none"""


def shown(text):
    for name, mark in NAMES.items():
        text = text.replace(mark, f"⟦{name}⟧")
    return text


def masked(texts, pattern=""):
    found, stands_for = mask(tf.constant(texts, tf.string), pattern)
    back, _, found_spans = unmask(found, stands_for)
    assert [text.decode("utf-8", "replace") for text in back.numpy()] == list(texts)
    return [shown(text.decode()) for text in found.numpy()], found_spans.to_list()


def test_each_kind_of_span_is_found_and_put_back():
    found, _ = masked([*MASKED])
    assert dict(zip(MASKED, found, strict=True)) == {
        text: text if wanted is None else wanted for text, wanted in MASKED.items()
    }


def test_any_text_has_its_spans_put_back():
    rng = random.Random(0)
    fragments = [*MASKED, *"<>{}%&;@ \n$s1a.\"'", "\r\n", "\u2028", "</b>", "&quot;", "&amp;", "--"]
    texts = ["".join(rng.choices(fragments, k=8)) for _ in range(300)]
    for pattern in ("", r"\d+|a\.", r"(?i)[A-Z]+-(\d+)"):
        masked(texts, pattern)
    masked([])


@pytest.mark.parametrize(("text", "pattern", "wanted", "found"), [
    ("SKU-17 of {x} kg (SKU-4)", r"SKU-\d+", "⟦W⟧ of ⟦W⟧ kg (⟦W⟧)", ["SKU-17", "{x}", "SKU-4"]),
    ("aX X{y}X ^X", r"\BX|^q", "a⟦W⟧ X⟦W⟧X ^X", ["X", "{y}"]),  # it sees what is beside
    ("5% of {x}", r"\d%", "⟦W⟧ of ⟦W⟧", ["5%", "{x}"]),
])  # fmt: skip
def test_a_pattern_of_ones_own_is_protected_too(text, pattern, wanted, found):
    assert masked([text], pattern) == ([wanted], [[span.encode() for span in found]])


@pytest.mark.parametrize(("pattern", "message"), [
    ("(", r"is '\(', which is not a pattern in RE2's syntax \(missing \)\): see"),
    ("(?=x)", r"not a pattern in RE2's syntax \(invalid [^{}]*\): see"),
    ("a{1001}", r"RE2's syntax \(invalid repetition size: \{1001\}\): see"),
    ("a*", "matches the empty text: make it match at least one"),
    (r"\b\d*", "matches the empty text"),
    (r"x|\Bx*", "matches the empty text"),
    ("(?m)^#*|x", "matches the empty text"),
    (".+", "protects all words of 'The old man sees 2 dogs.'"),
    (r"\p{Cyrillic}+", "protects all words of 'Собака"),
    ("\ud800", "not a pattern"),
    (3, "give a pattern in RE2's syntax"),
])  # fmt: skip
def test_a_pattern_that_cannot_be_meant_is_refused(pattern, message):
    with pytest.raises(InputError, match=message):
        SpanPattern().check("protected_pattern", pattern)


def test_patterns_that_match_some_or_nothing_are_taken():
    for pattern in ("", r"SKU-\d+", "[^\\s\\S]", "(?i)gmbh|ag", r"\b\d+\b", "(?m)^#.*$"):
        assert SpanPattern().check("protected_pattern", pattern) == pattern


def test_empty_matches_are_no_parts():
    texts = tf.constant([b"", b"a 12,\x00b", b"12", b"a\xffb"])
    parts, is_match = split_by_pattern(texts, r"\b\d*")
    assert parts.to_list() == [
        [],
        [b"a", b" ", b"12", b",\x00", b"b"],
        [b"12"],
        [b"a", "\ufffd".encode(), b"b"],
    ]
    assert is_match.numpy().tolist() == [n in (2, 5) for n in range(9)]


def test_the_lines_of_a_span_are_one_document():
    documents = [b"a\n", b"b <!-- c\nd\n--> e\n", b"<!-->\n", b"f < g\n", b"<a\nhref='h'>i</a>\n"]
    documents += [b"<PRE>j\n<b>\n</pre>k\n", b"<?php l\nm ?>\n", b"{% n\n%}\n", b"{o\n", b"p}\n"]
    documents += [b"{q, plural,\none {r}\nother {s}}\n", b"<!DOCTYPE t [\n<u>]>\n"]
    documents += [b"- ```\n  <a\n  ```\n", b"~~~~\n~~~\n~~~~\r\n", b"<svg\nb/>c\n", b"---\n"]
    documents += [b"<div translate='no'>\n<div>\n</div>\nx</div>\n", b"{o, plural,\n"]
    documents += [b"{q, select,\none {r}\nother {s}}\n"]
    documents += [b"<!--\n" + 1_998 * b"v\n" + b"-->\n"]
    documents += [b"<!--\n", *1_999 * [b"w\n"], b"-->\n"]  # one line more than a span may have
    documents += [b"- $$\na_i = b\n$$\n", b"$$x$$\n", b"$$\r\ny\n\n", b"z $$\n"]
    documents += [b"$$ Good food.\n", b"$$ Much better food.\n"]
    documents += [b"<!-- without\n", b"an end"]
    found = list(join_lines(line for text in documents for line in text.splitlines(keepends=True)))
    expected = [part for text in documents for part in (text, *(text.count(b"\n") - 1) * [b""])]
    assert found == expected
    assert list(join_lines([b"---\n", b"a: b\n", b"---\n", b"c\n"]))[1:] == [b"", b"", b"c\n"]


@pytest.mark.parametrize("line", [
    b"Here a <b and\n", b"{% and\n", b"{n, plural, x\n", b"```a\n", b"<pre>x <% <a translate=no>\n"
])  # fmt: skip
def test_lines_without_ends_take_linear_time(line):
    seconds = time.process_time()
    assert list(join_lines([line] * 10_000)) == [line] * 10_000
    assert time.process_time() - seconds < 5  # a scan ahead of each line takes minutes
