# Prints one line with the number of packages instead of pip's several hundred lines. Errors of pip are printed unchanged.
# -v live=yes: the output is a terminal, so the line is updated while pip runs.
/^(Collecting|Processing|Requirement already satisfied:)/ { packages++; if (live) { printf "\r  %d packages", packages; fflush() } }
/^Installing collected/ { if (live) { printf "\r  %d packages, unpacking", packages; fflush() } }
/^ *(ERROR|error)/      { print (live ? "\n" : "") $0 }
/^pip failed$/          { failed = 1 }
END {
    if (packages) printf "\r  %d packages%s\n", packages, live ? "             " : ""
    if (failed) print "error: pip failed.\ntry:   less .venv/install.log"
    exit failed
}
