# A function of the scripts. Each program that they need not start saves about a millisecond.
is_empty() {
    for name in * .[!.]* ..?*; do [ ! -e "$name" ] && [ ! -L "$name" ] || return 1; done
}
