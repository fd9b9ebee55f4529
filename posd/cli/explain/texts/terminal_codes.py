"""Codes and types of the terminal's own errors: what is known of each, and how surely (terminal API, Refusals)."""

from collections.abc import Mapping
from typing import Final

from posd.cli.explain.texts.rows import PRINTS, TRY_AGAIN, Row, Words

_SHOW: Final = ("posd show ID",)
_MONEY: Final = (
    (
        "The outcome says it: what is not_started was not charged. In doubt the customer may be charged: do not charge "
        "again."
    ),
    (
        "Lo dice el resultado: lo que es not_started no se cobró. En duda puede que se haya cobrado al cliente: no "
        "cobre otra vez."
    ),
)
_UNKNOWN: Final = ("What it says is not known.", "No se sabe qué dice.")
_ASK: Final = (
    "Look at the message beside it. If it goes on, ask the vendor of the terminals with this code:",
    "Mire el mensaje que está al lado. Si sigue, pregunte al proveedor de los terminales con este código:",
)
_CONFIGURE: Final = (
    "Look whether the terminal is set up for this operation, and ask the vendor of the terminals with this code:",
    "Vea si el terminal está configurado para esta operación, y pregunte al proveedor con este código:",
)
_SIGN: Final = (
    "Check auth and business_code of the terminal, the headers, and the clock of this machine:",
    "Revise auth y business_code del terminal, los encabezados, y el reloj de esta máquina:",
)
_CORRECT: Final = (
    "Correct what the message or its param names; of a till, tell its vendor:",
    "Corrija lo que nombra el mensaje o su param; si es de la caja, avise a su proveedor:",
)
_ASK_BANK: Final = (
    "Do not charge again. posd asks the terminal for it; where that does not help, ask the acquirer:",
    "No cobre otra vez. posd pregunta al terminal; si eso no ayuda, pregunte al adquirente:",
)


def _family(english: str, spanish: str) -> Words:
    return f"An error of the family {english}.", f"Un error de la familia {spanish}."


_PUBLISHED: Final = (
    "The family is published; the codes in it are not, but for a few.",
    "La familia está publicada; sus códigos no, salvo unos pocos.",
)
_EXAMPLE: Final = (
    "The code is published as an example of its family, without a text.",
    "El código está publicado como ejemplo de su familia, sin texto.",
)
_TYPE: Final = (
    "A type that is published or was seen; the code beside it says more.",
    "Un tipo publicado o visto; el código que está al lado dice más.",
)
_PARAMETERS: Final = _family("PAR- (parameters)", "PAR- (parámetros)")
_TERMINAL: Final = _family("TER- (terminal)", "TER- (terminal)")
_AUTHENTICATION: Final = _family("AUTH- (authentication)", "AUTH- (autenticación)")
_NOT_FOUND: Final = _family("NF- (not found)", "NF- (no encontrado)")
_CONFIGURATION: Final = _family("CONF- (configuration)", "CONF- (configuración)")
_MANUFACTURER: Final = _family("MAN- (manufacturer)", "MAN- (fabricante)")

_BANK: Final = Row(
    ("An error of the acquirer: it may have been asked.", "Un error del adquirente: puede que se le haya preguntado."),
    (
        "Published: its codes are its own, without a prefix, and its HTTP status is kept. Older documents show ACQ-13.",
        (
            "Publicado: sus códigos son propios, sin prefijo, y se conserva su estado HTTP. Documentos antiguos "
            "muestran ACQ-13."
        ),
    ),
    (
        "In an event the outcome says it. In an answer to a call it is no refusal: the customer may be charged.",
        (
            "En un evento lo dice el resultado. En la respuesta a una llamada no es un rechazo: puede que se haya "
            "cobrado al cliente."
        ),
    ),
    _ASK_BANK,
    ("posd reconcile ID", "posd show ID"),
)
_SIGNATURE: Final = ("posd clock", "posd config show")
_CANCELED: Final = Row(
    (
        "TERMINAL-SUNMI with the code -1: the customer canceled on the terminal.",
        "TERMINAL-SUNMI con el código -1: el cliente canceló en el terminal.",
    ),
    (
        "Seen in one integration, under HTTP 200. With another code, what TERMINAL-SUNMI says is not known.",
        "Visto en una integración, con HTTP 200. Con otro código no se sabe qué dice TERMINAL-SUNMI.",
    ),
    (
        "No, as far as the terminal tells: the outcome is canceled, until an event says otherwise.",
        "No, según el terminal: el resultado es canceled, hasta que un evento diga otra cosa.",
    ),
    TRY_AGAIN,
    (),
)

#: Code or type -> what is known of it. A code that ends in "-" stands for its family.
ROWS: Final[Mapping[str, Row]] = {
    "TER-003": Row(
        ("The terminal is busy with something else.", "El terminal está ocupado con otra cosa."),
        (
            "Seen in one integration, with HTTP 409. Another till, another posd, or a person in its menu uses it.",
            "Visto en una integración, con HTTP 409. Lo usa otra caja, otro posd, o una persona en su menú.",
        ),
        _MONEY,
        (
            "Look at the terminal's screen. posd never tries again by itself: start a new payment when it is idle.",
            (
                "Mire la pantalla del terminal. posd nunca intenta otra vez por sí mismo: inicie un pago nuevo cuando "
                "esté libre."
            ),
        ),
        (),
    ),
    "TER-002": Row(_UNKNOWN, _EXAMPLE, _MONEY, _ASK, _SHOW),
    "TER-004": Row(_UNKNOWN, _EXAMPLE, _MONEY, _ASK, _SHOW),
    "TER-": Row(_TERMINAL, _PUBLISHED, _MONEY, _ASK, _SHOW),
    "PAR-003": Row(
        ("An amount has to be above 0.", "Un monto debe ser mayor que 0."),
        ("Published, with this text.", "Publicado, con este texto."),
        _MONEY,
        _CORRECT,
        _SHOW,
    ),
    "PAR-": Row(_PARAMETERS, _PUBLISHED, _MONEY, _CORRECT, _SHOW),
    "AUTH-001": Row(_AUTHENTICATION, _EXAMPLE, _MONEY, _SIGN, _SIGNATURE),
    "AUTH-": Row(_AUTHENTICATION, _PUBLISHED, _MONEY, _SIGN, _SIGNATURE),
    "NF-001": Row(_NOT_FOUND, _EXAMPLE, _MONEY, _ASK, _SHOW),
    "NF-": Row(_NOT_FOUND, _PUBLISHED, _MONEY, _ASK, _SHOW),
    "CONF-4007": Row(_CONFIGURATION, _EXAMPLE, _MONEY, _CONFIGURE, _SHOW),
    "CONF-": Row(_CONFIGURATION, _PUBLISHED, _MONEY, _CONFIGURE, _SHOW),
    "MAN-30005": Row(_MANUFACTURER, _EXAMPLE, _MONEY, _ASK, _SHOW),
    "MAN-": Row(_MANUFACTURER, _PUBLISHED, _MONEY, _ASK, _SHOW),
    "ACQ-13": _BANK,
    "ACQ": _BANK,
    "-1": _CANCELED,
    "PARAMETER": Row(("An error in what was sent.", "Un error en lo que se envió."), _TYPE, _MONEY, _CORRECT, _SHOW),
    "TERMINAL": Row(("An error of the terminal.", "Un error del terminal."), _TYPE, _MONEY, _ASK, _SHOW),
    "ACQUIRER": _BANK,
    "AUTHENTICATION": Row(
        ("The authentication was not accepted.", "No se aceptó la autenticación."), _TYPE, _MONEY, _SIGN, _SIGNATURE
    ),
    "AUTH": Row(
        ("The authentication was not accepted.", "No se aceptó la autenticación."),
        ("The name of AUTHENTICATION in older notes.", "El nombre de AUTHENTICATION en notas antiguas."),
        _MONEY,
        _SIGN,
        _SIGNATURE,
    ),
    "CONFIGURATION": Row(
        ("An error in how the terminal is set up.", "Un error en la configuración del terminal."),
        _TYPE,
        _MONEY,
        _CONFIGURE,
        _SHOW,
    ),
    "NOT_FOUND": Row(("Something was not found.", "No se encontró algo."), _TYPE, _MONEY, _ASK, _SHOW),
    "MANUFACTURER": Row(("An error of the device itself.", "Un error del equipo mismo."), _TYPE, _MONEY, _ASK, _SHOW),
    "TERMINAL-SUNMI": _CANCELED,
    "TERMINAL-PRINTER": Row(
        ("An error of the terminal's printer.", "Un error de la impresora del terminal."),
        (
            "Seen in two integrations. Its codes are not known: paper, cover or heat are likely.",
            "Visto en dos integraciones. No se conocen sus códigos: lo probable es el papel, la tapa o el calor.",
        ),
        PRINTS,
        ("Look at the printer, then print again:", "Mire la impresora, luego imprima otra vez:"),
        ("posd print-jobs",),
    ),
    "CLOUDPAYMENT_VALIDATION_ERROR": Row(
        ("The cloud of the service refused the call.", "La nube del servicio rechazó la llamada."),
        (
            (
                "Seen in one integration, for a wrong signature, for a terminal that was offline, and for an id that "
                "is no UUID: one answer for all three."
            ),
            (
                "Visto en una integración, por una firma errónea, por un terminal sin conexión, y por un id que no es "
                "un UUID: una respuesta para los tres."
            ),
        ),
        _MONEY,
        (
            "Look whether the terminal is on and has a network; then check auth, business_code and the clock:",
            "Vea si el terminal está encendido y tiene red; luego revise auth, business_code y el reloj:",
        ),
        ("posd terminals", "posd clock"),
    ),
}
