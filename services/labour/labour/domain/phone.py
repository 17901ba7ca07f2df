"""Phone numbers in E.164, from the way people write them: only numbers that a person's mobile phone can have.

Every other kind costs us or the person who is texted, or cannot receive a text: premium and shared-cost numbers, pagers and
satellite phones; personal numbers, which forward at an unknown price; company numbers, internet telephony and landlines.
In North America a landline and a mobile phone look the same, so such a number is accepted.
"""

from collections.abc import Set

import phonenumbers
from phonenumbers import PhoneNumberType

from labour.domain.errors import NotAPhoneNumber, PhoneNotSupported

INVALID_COUNTRY_CODE = phonenumbers.NumberParseException.INVALID_COUNTRY_CODE
MOBILE = frozenset({PhoneNumberType.MOBILE, PhoneNumberType.FIXED_LINE_OR_MOBILE})


def to_e164(text: str, countries: Set[str]) -> str:
    """Raises `NotAPhoneNumber`, or `PhoneNotSupported` for one that is not a mobile phone's in one of the `countries`.

    `countries` are ISO 3166 codes such as US. Satellite and other international networks belong to no country.
    """
    try:
        number = phonenumbers.parse(text, None)
    except phonenumbers.NumberParseException as error:
        if error.error_type == INVALID_COUNTRY_CODE:
            raise NotAPhoneNumber("The phone number must start with + and a country code, like +12025550123.") from None
        raise NotAPhoneNumber("This is not a phone number. Write it like +12025550123.") from None
    if number.extension:
        raise NotAPhoneNumber("A number with an extension cannot receive an SMS. Leave the extension out.")
    if not phonenumbers.is_valid_number(number):
        raise NotAPhoneNumber("No phone can have this number. Check its digits and country code.")
    if phonenumbers.region_code_for_number(number) not in countries:
        raise PhoneNotSupported(
            "We do not send texts to numbers of this country or network. Use a number of another one."
        )
    if phonenumbers.number_type(number) not in MOBILE:
        raise PhoneNotSupported("This is not the number of a mobile phone. Use the number of a mobile phone.")
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)
