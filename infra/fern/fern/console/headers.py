"""The response headers of every file and page of the console."""

HEADERS = {
    # Names and texts come from users: the page may load and run nothing but its own files.
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
