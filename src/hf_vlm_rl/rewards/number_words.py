"""Words and symbols that stand with numbers, for `written_numbers`."""

SCALES = {"hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12, "dozen": 12.0}

# Units that change the value: letters that stand for numbers, and powers of ten in short and in full, as the
# CLDR has them for some thirty languages.
_MAGNITUDES = """
x e i π K M G T B E N L k bn mn tn tril lakh lakhs crore crores Cr LCr KCr
Bio Billion Billionen Milliarde Milliarden Millionen Mio Mrd Tausend Tsd
Md billions mille milliard milliards millier
millions billones billón mil millones millón
Bln Mld Mln mila miliardi miliardo milione milioni
bi bilhão bilhões mi milhão milhões tri trilhão trilhões biljoen duizend miljard miljoen
biljon biljoner miljarder miljon miljoner tusen billioner mia mio milliarder millioner tusind mill
biljoona biljoonaa bilj milj miljardi miljardia miljoona miljoonaa tuhat tuhatta ezer milliárd millió billió
bilion biliona biliony bilionów miliard miliarda miliardy miliardów milion miliona miliony milionów
tys tysiąc tysiąca tysiące tysięcy
bilionu bilionů milionu milionů tisíc tisíce mie mii miliarde milioane trilioane
миллиард миллиарда миллиардов миллион миллиона миллионов млн млрд триллион триллиона триллионов трлн
тыс тысяч тысяча тысячи
мільйон мільйона мільйони мільйонів мільярд мільярда мільярди мільярдів тис тисяч тисяча тисячі
Mn Mr Tn bin milyar milyon trilyon NT Tr nghìn triệu tỷ jt juta miliar rb ribu triliun
अरब अ करोड़ क खरब ख नील लाख हज़ार हजार কো কোটি লা লাখ শত হা হাজার
آلاف ألف ترليون ملايين مليار مليون تریلیون میلیارد میلیون هزار هزارمیلیارد אלף טריליון מיליארד מיליון
δισ δισεκατομμύρια δισεκατομμύριο εκ εκατομμύρια εκατομμύριο τρισ τρισεκατομμύρια χιλ χιλιάδα χιλιάδες
"""
MAGNITUDES = frozenset(_MAGNITUDES.split())
MAGNITUDES |= {word.lower() for word in MAGNITUDES if len(word) > 1}

# Symbols that may touch a number.
_SYMBOLS = """
m km dm cm mm µm μm nm in ft yd g kg mg µg μg t lb lbs oz l ml cl dl s ms min h hr hrs d px pt
a ma mah v mv kv w kw mw gw wh kwh mwh hz khz mhz ghz j kj mj cal kcal n kn pa kpa hpa mpa bar mol c f
kb mb gb tb mph kmh rpm fps dpi ppm usd eur gbp
"""
SYMBOLS = frozenset(_SYMBOLS.split())
# Of these, "m" and "M" before the rest are different units.
MILLI_AND_MEGA = frozenset(("mw", "mv", "ma", "mj", "mpa"))
ALIASES = {"percent": "%", "dollar": "$", "dollars": "$", "usd": "$", "euro": "€", "euros": "€", "eur": "€"}

# Between two numbers, these make one of them: "3 or 4", "2 point 5", "5 ft 3 in".
_JOINING = """
to or and of by plus minus times over point vs feet foot hours hour minutes minute degrees pounds
bis oder und à ou et sur o y de e di en eller och и или
"""
JOINING = "|".join([*_JOINING.split(), *SYMBOLS, *SCALES, "out of", "(?:divided|multiplied) by", "raised to"])
JOINING_CHARACTERS = "点點分之时時到至或加减減乘除以和比又与與年月시년월"

# Before a number.
CHANGING_BEFORE = "|".join(
    (
        "(?:root|half|third|quarter|square) of|root|sqrt|twice|double|triple|log|ln|sin|cos|tan",
        "(?:more|less|fewer|greater|larger|smaller) than|at (?:least|most)|up to|over|under|above|below",
    )
)
CHANGING_BEHIND = r"squared|cubed|factorial|and (?:a|one|three) \p{L}++|or (?:more|less|fewer)"
# In scripts without spaces: "the fifth", "minus", "of", and magnitudes.
FORBIDDEN_BEFORE = frozenset("第负負之")
FORBIDDEN_BEHIND = ("만", "억", "조", "천", "백", "พัน", "หมื่น", "แสน", "ล้าน")
