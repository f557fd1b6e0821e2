"""Languages as inputs of one model: the tokens that select source and target language.

A model of many languages reads them as tokens: one before the source, a forced first token of the
target, or both. A `LanguageTemplate` describes this and gives the id of each language's token. It
is the attribute `languages` of a tokenizer (`None` for a bilingual model) and is saved with it.
"""

import dataclasses
import re

import tensorflow as tf

from t2t_keras.data.base_tokenizer import valid_utf8
from t2t_keras.data.ragged import prepend_to_texts
from t2t_keras.errors import InputError
from t2t_keras.graphs import after
from t2t_keras.types import Encoder

_ROLES = ("source", "target", "")
_CODE = re.compile(r"[\w.@-]+")
_OTHER_CODES = """
af:afr ak:aka am:amh ar:ara,arb as:asm ast:ast ay:aym,ayr az:aze,azj ba:bak be:bel bg:bul bm:bam
bn:ben bo:bod,tib br:bre bs:bos ca:cat ceb:ceb cs:ces,cze,cz cy:cym,wel da:dan,dk de:deu,ger dz:dzo
ee:ewe el:ell,gre,gr en:eng eo:epo es:spa et:est,ekk eu:eus,baq fa:fas,pes,per,prs ff:ful,fuv,fuf
fi:fin fj:fij fo:fao fr:fra,fre fy:fry ga:gle gd:gla gl:glg gn:grn gu:guj ha:hau he:heb,iw hi:hin
hr:hrv ht:hat hu:hun hy:hye,arm id:ind,in ig:ibo ilo:ilo is:isl,ice it:ita ja:jpn,jp jv:jav,jw
ka:kat,geo kg:kon kk:kaz km:khm kn:kan ko:kor,kr ku:kur,kmr,ckb ky:kir lb:ltz lg:lug li:lim ln:lin
lo:lao lt:lit lv:lav,lvs mg:mlg,plt mi:mri,mao mk:mkd,mac ml:mal mn:mon,khk mr:mar ms:msa,zsm,may
mt:mlt my:mya,bur ne:nep,npi nl:nld,dut no:nor,nob,nno,nb,nn ns:nso ny:nya oc:oci om:orm,gaz
or:ori,ory pa:pan pl:pol ps:pus,pbt pt:por qu:que,quy rn:run ro:ron,rum,mo ru:rus rw:kin sa:san
sc:srd sd:snd sg:sag si:sin sk:slk,slo sl:slv sm:smo sn:sna so:som sq:sqi,als,alb sr:srp ss:ssw
st:sot su:sun sv:swe sw:swa,swh ta:tam te:tel tg:tgk th:tha ti:tir tk:tuk tl:tgl,fil tn:tsn tr:tur
ts:tso tt:tat tw:twi ug:uig uk:ukr ur:urd uz:uzb,uzn vi:vie wo:wol xh:xho yi:yid,ydd,ji yo:yor
zh:zho,chi,cmn,cn zu:zul
"""
"""Languages: code of ISO 639-1, if any, and others of the same language, some of them mistaken."""


@dataclasses.dataclass(frozen=True)
class LanguageTemplate:
    """The positions and ids of the language tokens.

    The source is `[language] tokens </s>`, the target that the decoder predicts `[language] tokens
    </s>`. Either language may be missing. The decoder first reads the beginning-of-sequence id.

    | model | `source` | `forces_target` |
    | --- | --- | --- |
    | Johnson et al. 2017, tensor2tensor, SMaLL-100 | "target" | False |
    | M2M-100, NLLB-200, mBART-50 | "source" | True |

    Raises:
        InputError: if a field is invalid.
    """

    ids: dict  # {code: id of its token}, such as {"de": 4, "en": 5}
    # the language whose token precedes a source: "source", "target", or "" for none
    source: str = ""
    # whether every target begins with the token of its language. This token is certain: it counts
    # in the length of a translation, but not in its log P
    forces_target: bool = False

    def __post_init__(self):
        for code, index in self.ids.items():
            if not isinstance(code, str) or not _CODE.fullmatch(code):
                raise InputError(
                    f"the language {code!r} is not a code: give only letters, digits, '_', '-', "
                    "'.' and '@', such as de or deu_Latn."
                )
            if type(index) is not int or index < 0:
                raise InputError(
                    f"the token of language {code!r} has the id {index!r}: give a whole number of "
                    "at least 0."
                )
        if len(set(self.ids.values())) < len(self.ids) or not self.ids:
            raise InputError(f"ids is {self.ids}: give each language a token of its own.")
        if self.source not in _ROLES:
            raise InputError(f"source is {self.source!r}: give one of {', '.join(_ROLES[:2])}, ''.")
        if not (self.source or self.forces_target):
            raise InputError(
                "the template has no place for a language: set source or forces_target."
            )

    @property
    def codes(self):
        """The codes of the languages, sorted."""
        return sorted(self.ids)

    def reads(self, name):
        """Returns whether the model reads the language of a name, such as `source_language`."""
        return name == f"{self.source}_language" or (
            name == "target_language" and self.forces_target
        )

    def require_unread(self, name):
        """Raises InputError if the model needs this language, which is missing."""
        if self.reads(name):
            raise InputError(
                f"{name} is missing: give one of {', '.join(self.codes)}, for all texts or for "
                "each."
            )

    def id_of(self, name: str, code: str) -> int:
        """Returns the id of a language's token; raises InputError if there is none.

        Args: name, `source_language` or `target_language`, for the message.
        """
        if code not in self.ids:
            raise InputError(f"{name} is {code!r}: {advised_codes(code, self.codes)}.")
        return self.ids[code]

    def first_ids(self, source_language, target_language):
        """Returns the tokens before each source and each target, inside a graph or outside.

        Args:
            source_language, target_language: string [batch], codes. "" and None are allowed for a
                language that the template does not read.

        Returns:
            int32 [batch] for the sources and for the targets; None if there is none.

        Raises:
            InputError: if a language that the template reads is None.
            tf.errors.InvalidArgumentError: for an unknown code, with the list of known ones.
        """
        ids, checks = {}, []
        given = {"source_language": source_language, "target_language": target_language}
        for name, codes in given.items():
            if codes is None:
                self.require_unread(name)
                continue
            known = codes[:, tf.newaxis] == tf.constant(self.codes)  # [batch, languages]
            index = tf.argmax(tf.cast(known, tf.int32), axis=1)
            ids[name] = tf.gather(tf.constant([self.ids[code] for code in self.codes]), index)
            unknown = ~tf.reduce_any(known, axis=1)
            if not self.reads(name):
                unknown &= codes != ""
            first = tf.boolean_mask(codes, unknown)[:1]
            message = f"{name} holds {{}}: give one of {', '.join(self.codes)} for each text."
            shown = tf.strings.regex_replace(valid_utf8(tf.strings.reduce_join(first)), r"\s", " ")
            message = tf.strings.format(message, tf.strings.substr(shown, 0, 40, "UTF8_CHAR"))
            checks.append(tf.debugging.Assert(~tf.reduce_any(unknown), [message]))
        ids = after(checks, ids)
        source = ids[f"{self.source}_language"] if self.source else None
        return source, ids["target_language"] if self.forces_target else None

    def checked_sources(self, source_ids, has_tokens, target_language):
        """Returns sources, checked to begin with their language token, in a graph or outside.

        Args:
            source_ids: int32 [batch, source].
            has_tokens: bool [batch], sources that must have a language's token.
            target_language: string [batch], codes, or None.

        Raises:
            tf.errors.InvalidArgumentError: if a source does not begin with the language token that
                the model reads, or if that is not the token of `target_language`.
        """
        if not self.source:
            return source_ids
        known = ", ".join(f"{self.ids[code]} ({code})" for code in self.codes)
        if self.source == "target":
            first, _ = self.first_ids(tf.fill(tf.shape(has_tokens), ""), target_language)
            is_valid = source_ids[:, 0] == first
            wrong = "a source that does not begin with the token of its target_language"
        else:
            is_valid = self.is_language(source_ids[:, 0])
            wrong = "a source without the token of its language"
        message = f"source_ids holds {wrong}: give one of {known} as its first."
        check = tf.debugging.Assert(tf.reduce_all(is_valid | ~has_tokens), [message])
        return after([check], source_ids)

    def is_language(self, ids):
        """Returns whether each id, a dense int32 tensor, is a language's token: bool."""
        return tf.reduce_any(ids[..., tf.newaxis] == tf.constant([*self.ids.values()]), axis=-1)


def advised_codes(code, codes):
    """Returns a str that advises which known code to give instead of an unknown one."""
    main = {c: row.split(":")[0] for row in _OTHER_CODES.split() for c in re.split("[:,]", row)}

    def parts(code):
        language, *others = re.split("[-_.@]", code.lower())
        return [main.get(language, language), *others]

    same = [known for known in codes if parts(known) == parts(code)]
    same = same or [known for known in codes if parts(known)[0] == parts(code)[0]]
    advice = f"give one of {', '.join(codes)}"
    return f"did you mean {' or '.join(same)}? Else {advice}" if same else advice


class DirectionEncoder:
    """A tokenizer for one direction: it adds a language's token before each text with tokens.

    Args:
        tokenizer: `Tokenizer`, or another object with `encode`, `eos_id` and `fingerprint`.
        first_id: the id of the language's token.
    """

    def __init__(self, tokenizer: Encoder, first_id: int):
        self.eos_id = tokenizer.eos_id
        self.adds_eos = getattr(tokenizer, "adds_eos", True)
        self._tokenizer, self._first_id = tokenizer, first_id

    def encode(self, texts):
        """Encodes texts, as `Tokenizer.encode` does."""
        return prepend_to_texts([self._first_id], self._tokenizer.encode(texts))

    def fingerprint(self):
        """Returns a str: if it is equal, all texts are encoded equally."""
        return repr((self._tokenizer.fingerprint(), self._first_id))


def direction_encoders(template, sources, targets, source_language, target_language):
    """Returns the encoders of a direction's sources and targets, of the tokenizers of both sides.

    Raises:
        InputError: if the model has no such language.
    """
    given = {"source_language": source_language, "target_language": target_language}
    ids = {name: template.id_of(name, code) for name, code in given.items() if template.reads(name)}
    if template.source:
        sources = DirectionEncoder(sources, ids[f"{template.source}_language"])
    if template.forces_target:
        targets = DirectionEncoder(targets, ids["target_language"])
    return sources, targets


def prepend(first_ids, ids):
    """Returns ids, int32 [batch, (length)], each row behind one of `first_ids`, int32 [batch]."""
    return ids if first_ids is None else tf.concat([first_ids[:, tf.newaxis], ids], axis=1)
