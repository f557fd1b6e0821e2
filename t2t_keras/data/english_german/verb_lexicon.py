"""Verbs and modal verbs, one line a verb, with the forms that no rule gives."""

from typing import NamedTuple

from t2t_keras.data.english_german.lexicon import rows, words


class Verb(NamedTuple):
    """A verb in both languages.

    `english` is (base, past, participle), each with its particle; `german_present` is
    (ich, du, er, wir), `german_past` the form of ich; both without the separable `prefix`.
    `infinitive` and `participle` carry the prefix. `frame` names the complements.
    """

    frame: str
    english: tuple[str, str, str]
    infinitive: str
    zu_infinitive: str
    german_present: tuple[str, str, str, str]
    german_past: str
    participle: str
    auxiliary: str
    prefix: str
    reflexive: bool


class Modal(NamedTuple):
    """A modal verb; `english` has the forms of the third person and of the others.

    A `helped` modal is itself negated and questioned with "do" (does not want to).
    `negated` is what German uses under negation (must not: nicht dürfen).
    """

    english: tuple[str, str]
    past: bool
    helped: bool
    german: tuple[str, str, str, str]
    negated: tuple[str, str, str, str]


# frame  english: base past participle  german: infinitive du er past participle auxiliary
# A separable prefix ends with "|", a reflexive verb begins with "sich_".
_VERBS = """
none sleep slept slept schlafen schläfst schläft schlief geschlafen haben
none laugh laughed laughed lachen lachst lacht lachte gelacht haben
none dance danced danced tanzen tanzt tanzt tanzte getanzt haben
none work worked worked arbeiten arbeitest arbeitet arbeitete gearbeitet haben
none swim swam swum schwimmen schwimmst schwimmt schwamm geschwommen sein
none wake_up woke_up woken_up auf|wachen wachst wacht wachte gewacht sein
none get_up got_up got_up auf|stehen stehst steht stand gestanden sein
none arrive arrived arrived an|kommen kommst kommt kam gekommen sein
none hurry hurried hurried sich_beeilen beeilst beeilt beeilte beeilt haben
none rest rested rested sich_aus|ruhen ruhst ruht ruhte geruht haben
any see saw seen sehen siehst sieht sah gesehen haben
any find found found finden findest findet fand gefunden haben
any draw drew drawn zeichnen zeichnest zeichnet zeichnete gezeichnet haben
any like liked liked mögen magst mag mochte gemocht haben
goods buy bought bought kaufen kaufst kauft kaufte gekauft haben
goods sell sold sold verkaufen verkaufst verkauft verkaufte verkauft haben
goods need needed needed brauchen brauchst braucht brauchte gebraucht haben
goods forget forgot forgotten vergessen vergisst vergisst vergaß vergessen haben
goods bring_back brought_back brought_back zurück|bringen bringst bringt brachte gebracht haben
goods take_along took_along taken_along mit|nehmen nimmst nimmt nahm genommen haben
being love loved loved lieben liebst liebt liebte geliebt haben
being hear heard heard hören hörst hört hörte gehört haben
being wake woke woken wecken weckst weckt weckte geweckt haben
person know knew known kennen kennst kennt kannte gekannt haben
person visit visited visited besuchen besuchst besucht besuchte besucht haben
person call called called an|rufen rufst ruft rief gerufen haben
person invite invited invited ein|laden lädst lädt lud geladen haben
person pick_up picked_up picked_up ab|holen holst holt holte geholt haben
text read read read lesen liest liest las gelesen haben
text write wrote written schreiben schreibst schreibt schrieb geschrieben haben
opening open opened opened auf|machen machst macht machte gemacht haben
opening close closed closed zu|machen machst macht machte gemacht haben
clothes put_on put_on put_on an|ziehen ziehst zieht zog gezogen haben
machine repair repaired repaired reparieren reparierst repariert reparierte repariert haben
food eat ate eaten essen isst isst aß gegessen haben
dative help helped helped helfen hilfst hilft half geholfen haben
dative thank thanked thanked danken dankst dankt dankte gedankt haben
dative follow followed followed folgen folgst folgt folgte gefolgt sein
dative answer answered answered antworten antwortest antwortet antwortete geantwortet haben
give give gave given geben gibst gibt gab gegeben haben
give show showed shown zeigen zeigst zeigt zeigte gezeigt haben
give send sent sent schicken schickst schickt schickte geschickt haben
wait wait waited waited warten wartest wartet wartete gewartet haben
think think thought thought denken denkst denkt dachte gedacht haben
speak speak spoke spoken sprechen sprichst spricht sprach gesprochen haben
play play played played spielen spielst spielt spielte gespielt haben
dream dream dreamed dreamed träumen träumst träumt träumte geträumt haben
joy look_forward looked_forward looked_forward sich_freuen freust freut freute gefreut haben
remember remember remembered remembered sich_erinnern erinnerst erinnert erinnerte erinnert haben
direction go went gone gehen gehst geht ging gegangen sein
direction run ran run laufen läufst läuft lief gelaufen sein
direction drive drove driven fahren fährst fährt fuhr gefahren sein
location live lived lived wohnen wohnst wohnt wohnte gewohnt haben
lying lie lay lain liegen liegst liegt lag gelegen haben
standing stand stood stood stehen stehst steht stand gestanden haben
laying put put put legen legst legt legte gelegt haben
placing put put put stellen stellst stellt stellte gestellt haben
that know knew known wissen weißt weiß wusste gewusst haben
that say said said sagen sagst sagt sagte gesagt haben
that believe believed believed glauben glaubst glaubt glaubte geglaubt haben
that hope hoped hoped hoffen hoffst hofft hoffte gehofft haben
whether ask asked asked fragen fragst fragt fragte gefragt haben
infinitive try tried tried versuchen versuchst versucht versuchte versucht haben
infinitive promise promised promised versprechen versprichst verspricht versprach versprochen haben
infinitive decide decided decided beschließen beschließt beschließt beschloss beschlossen haben
feed eat ate eaten fressen frisst frisst fraß gefressen haben
copula be was been sein bist ist war gewesen sein
cost cost cost cost kosten kostest kostet kostete gekostet haben
own have had had haben hast hat hatte gehabt haben
"""

_ICH = {"wissen": "weiß", "mögen": "mag", "sein": "bin"}
_WIR = {"sein": "sind"}


def _verb(frame, base, past, participle, german, du, er, german_past, german_participle, auxiliary):
    reflexive = german.startswith("sich_")
    prefix, separator, stem = german.removeprefix("sich_").rpartition("|")
    return Verb(
        frame,
        (words(base), words(past), words(participle)),
        prefix + stem,
        f"{prefix}zu{stem}" if separator else f"zu {stem}",
        (_ICH.get(stem, stem.removesuffix("n")), du, er, _WIR.get(stem, stem)),
        german_past,
        prefix + german_participle,
        auxiliary,
        prefix,
        reflexive,
    )


_ALL_VERBS = tuple(_verb(*row) for row in rows(_VERBS))
VERBS = {verb.infinitive: verb for verb in _ALL_VERBS}
FRAMES = {
    frame: tuple(verb for verb in _ALL_VERBS if verb.frame == frame)
    for frame in {verb.frame: None for verb in _ALL_VERBS}
}

_KANN = ("kann", "kannst", "kann", "können")
_MUSS = ("muss", "musst", "muss", "müssen")
_WILL = ("will", "willst", "will", "wollen")
_DARF = ("darf", "darfst", "darf", "dürfen")
_SOLLTE = ("sollte", "solltest", "sollte", "sollten")
_KONNTE = ("konnte", "konntest", "konnte", "konnten")
_MUSSTE = ("musste", "musstest", "musste", "mussten")
_WOLLTE = ("wollte", "wolltest", "wollte", "wollten")

MODALS = {
    "can": Modal(("can", "can"), False, False, _KANN, _KANN),
    "must": Modal(("must", "must"), False, False, _MUSS, _DARF),
    "should": Modal(("should", "should"), False, False, _SOLLTE, _SOLLTE),
    "want": Modal(("wants to", "want to"), False, True, _WILL, _WILL),
    "have": Modal(("has to", "have to"), False, True, _MUSS, _MUSS),
    "could": Modal(("could", "could"), True, False, _KONNTE, _KONNTE),
    "had": Modal(("had to", "had to"), True, True, _MUSSTE, _MUSSTE),
    "wanted": Modal(("wanted to", "wanted to"), True, True, _WOLLTE, _WOLLTE),
}
