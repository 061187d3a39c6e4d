/*
 * Linked into the static binary of `scripts/dist`. Names are resolved by /etc/hosts and DNS, which glibc has built in.
 * Otherwise it would load the modules that /etc/nsswitch.conf names, of whatever version the machine has, into a program
 * that has another version of glibc.
 */
extern int __nss_configure_lookup(const char *database, const char *services);

__attribute__((constructor)) static void use_built_in_resolvers(void)
{
    __nss_configure_lookup("hosts", "files dns");
}
