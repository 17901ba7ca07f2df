"""Phone numbers as people type them, to E.164."""

import phonenumbers


class NotAPhoneNumber(Exception):
    """Says what is wrong and not what was typed."""


def to_e164(text: str) -> str:
    try:
        number = phonenumbers.parse(text, None)
    except phonenumbers.NumberParseException as error:
        if error.error_type == phonenumbers.NumberParseException.INVALID_COUNTRY_CODE:
            raise NotAPhoneNumber("The phone number must start with + and a country code, like +12025550123.") from None
        raise NotAPhoneNumber("That is not a phone number. Write it like +12025550123.") from None
    if number.extension:
        raise NotAPhoneNumber("A number with an extension cannot receive an SMS.")
    if not phonenumbers.is_valid_number(number):
        raise NotAPhoneNumber("No phone can have this number; check its digits and country code.")
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)
