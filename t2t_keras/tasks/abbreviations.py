"""Abbreviations whose period does not end a sentence, by language, for `documents.py`.

Words are in lower case and without their last period. Single letters and words with periods inside
("z.B.", "U.S.") are not listed: their last period never ends a sentence. Words that end
sentences just as often ("etc.", "usw.") are left out: the next word's case decides there.
"""

ABBREVIATIONS = {
    "cs": "apod atd atp bc čs doc ing judr kupř mgr mil mld mudr např odst phdr pozn prof resp "
    "rndr sv tel tj tzn tzv viz",
    "da": "bl ca dvs eks evt fhv fr hr inkl kl mht mia mio nr osv pga tlf vedr",
    "de": "abs allg bes bspw bzgl bzw ca dipl dr ebd einschl evtl exkl fa fr geb gegr gest ggf "
    "hl hr hrn hrsg inkl ing jh jhd kath kgl lt max med min mind mio mrd nördl obb österr "
    "phil prof rer röm sog st str südl tel ugs urspr usf verh vgl vorm wg zt ztr zzgl",
    "en": "adm apt approx assn ave blvd brig bros capt cf cmdr co col comdr corp cpl dept dist dr "
    "esp est ext ft gen gov hon hwy inc incl jr lt ltd maj messrs mfg mlle mme mr mrs ms "
    "msgr mt mts phd pl pres prof pvt rd rev sen sens sgt sr st supt univ viz vs",
    "el": "αι αρ βλ γρ δηλ δις δρ εκ εκατ ευρ κ κα κεφ κκ κος κτλ μ.χ μτφ πβ π.χ σ σελ στρ τηλ χλμ",
    "es": "admón aprox apdo av avda cap cc cía da dir dña dpto dr dra dres ed ee ej excmo excma ff "
    "gral ing izq lic ntra núm pág págs prof profa prov rr sr sra sres srta ss sta sto tel ud uds "
    "vda vd vds vid",
    "fi": "ent esim huom klo ks mm mrd ns nyk os puh prof synt toht tri ts vrt",
    "fr": "adj apr av bd boul cap cf chap dép dr env éd ex ing janv lt mgr mlle mlles mm mme "
    "mmes mrs prof rd sr st ste suiv tél vol",
    "hu": "bp dr ill kb kft pl rt stb szt tel ún ti vö zrt",
    "it": "arch avv cap co col dott dr egr fig gen geom ing mons pag prof rag sen sig sigg "
    "spett ss vol",
    "nl": "bijv blz ca dhr dr drs ed ev excl fa fig incl ing ir jhr jl max mevr min mr mw nl nr "
    "prof resp st tel vgl vnl zgn",
    "pl": "dr gen godz hab im inż itd kol ks lek mgr min mjr mld mln np nr ok os płk pl por "
    "proc prof przyp red rys str tab tel tj tys tzn tzw ul wg woj zob",
    "pt": "adm av cap cia dep dr dra dras drs ed eng engª est ex exmo exma fls gen gov lda ltda "
    "mons núm op pág págs prof profa prov res sr sra sras srs sta sto tel",
    "ro": "art bd bl cca dl dna dr ing lt nr prof sf str tel",
    "ru": "акад им гг гл гр д-р др ед илл кв кн корп кр млн млрд напр обл оз пер пл пом пос пр "
    "прим проф ред рис род руб св см соч ср ст стр табл тел тов тт тыс ул чл шт экз",
    "sv": "bl ca dvs eng enl forts fr hr inkl jfr kap kl mfl milj mm nr obs osv resp st tel tf "
    "ung utg",
    "tr": "alb apt av bkz bl bul cad doç dr ecz fak gen hz inş kur mah müd nr ör örn prof sok "
    "şti tel vb vd vs yay yy yzb",
}
"""{language code of ISO 639-1: its abbreviations, with spaces between}"""

BEFORE_NUMBERS = (
    "abb abs al alin app approx art arts bd bl ca ch chap cap cit cl cod col cols ed eds eq eqs "
    "etc ex f ff fig figs fn fol gl hl ibid jan feb mar apr jun jul aug sep sept oct nov dec "
    "kap kl lib ll n n° nº no nos nr nos núm op p pág par para paras pp pos pt ref refs rn s sec "
    "sect ser sig str tab taf tel teil tit tl ver vers vol vols vv z §§ "
    "гл п рис с см ст стр табл т"
)
"""Abbreviations of all languages only where a digit follows: "No. 5", but "No. Not me."."""

ORDINALS = "cs da de fi hu pl tr"
"""Languages in which a period after one or two digits makes an ordinal: "am 3. Oktober"."""
