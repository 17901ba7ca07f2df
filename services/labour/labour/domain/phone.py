"""Phone numbers in E.164, from the way people write them."""

import phonenumbers

from labour.domain.errors import NotAPhoneNumber

INVALID_COUNTRY_CODE = phonenumbers.NumberParseException.INVALID_COUNTRY_CODE


def to_e164(text: str) -> str:
    """Raises `NotAPhoneNumber` for a number that cannot receive an SMS."""
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
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)
