"""The countries whose mobile numbers may be texted: the setting SMS_COUNTRIES, and the country of a number.

The Labour service checks a number when it is added and when a request is approved. The dispatcher checks it before each call, if
it has the setting: a list that was made shorter must also hold for the numbers that were added before.
"""

from servicekit.settings import Environment

# Countries with few mobile numbers that pay their owner for each text received
COUNTRIES = "AT AU BE CA CH CZ DE DK ES FI FR GB GR IE IS IT LU NL NO NZ PL PT SE US"


def load_countries(environment: Environment, default: str = COUNTRIES) -> frozenset[str]:
    text = environment.optional("SMS_COUNTRIES")
    codes = frozenset((text or default).replace(",", " ").upper().split())
    if text:
        from phonenumbers import SUPPORTED_REGIONS  # slow to import, and every process reads the settings

        for code in sorted(codes - SUPPORTED_REGIONS):
            environment.refuse(
                f"SMS_COUNTRIES has {code!r}, which is not the code of a country: write it like GB,IE,US"
            )
    return codes


def country_of(phone: str) -> str | None:
    """The ISO 3166 code of a number in E.164, or 001 for a network of no country. None if the number belongs to no network that
    is known.
    """
    import phonenumbers

    try:
        return phonenumbers.region_code_for_number(phonenumbers.parse(phone, None))
    except phonenumbers.NumberParseException:
        return None
