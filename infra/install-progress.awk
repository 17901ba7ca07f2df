# pip's several hundred lines become one that counts; what it says when it fails is shown as it is.
# -v live=yes: stand on a terminal, so the count may move.
/^(Collecting|Processing|Requirement already satisfied:)/ { packages++; if (live) { printf "\r  %d packages", packages; fflush() } }
/^Installing collected/ { if (live) { printf "\r  %d packages, unpacking", packages; fflush() } }
/^ *(ERROR|error)/      { print (live ? "\n" : "") $0 }
/^pip failed$/          { failed = 1 }
END {
    if (packages) printf "\r  %d packages%s\n", packages, live ? "             " : ""
    if (failed) print "error: pip failed.\ntry:   less .venv/install.log"
    exit failed
}
