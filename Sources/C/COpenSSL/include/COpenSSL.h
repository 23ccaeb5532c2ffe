// OpenSSL 3 for Swift: its headers, and functions for the macros that Swift cannot import.
#ifndef COPENSSL_H
#define COPENSSL_H
#include <openssl/ssl.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <stdint.h>

static inline int copenssl_set_minimum_version(SSL_CTX *context, int version) {
  return (int)SSL_CTX_set_min_proto_version(context, version);
}
static inline int copenssl_set_maximum_version(SSL_CTX *context, int version) {
  return (int)SSL_CTX_set_max_proto_version(context, version);
}
static inline void copenssl_set_mode(SSL_CTX *context, long mode) { SSL_CTX_set_mode(context, mode); }
static inline void copenssl_enable_read_ahead(SSL_CTX *context) { SSL_CTX_set_read_ahead(context, 1); }
static inline void copenssl_disable_session_cache(SSL_CTX *context) {
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
}
static inline int copenssl_set_server_name(SSL *connection, const char *name) {
  return (int)SSL_set_tlsext_host_name(connection, name);
}
static inline int copenssl_set_groups(SSL_CTX *context, const char *names) {
  return (int)SSL_CTX_set1_groups_list(context, names);
}
// Takes over the caller's reference. Adds to the chain of the certificate set by SSL_CTX_use_certificate.
static inline int copenssl_add_chain_certificate(SSL_CTX *context, X509 *certificate) {
  return (int)SSL_CTX_add0_chain_cert(context, certificate);
}
static inline void copenssl_set_retry_read(BIO *bio) { BIO_set_retry_read(bio); }
static inline void copenssl_clear_retry_flags(BIO *bio) { BIO_clear_retry_flags(bio); }

// 64-bit options that a function-like macro defines.
static const uint64_t copenssl_no_renegotiation = SSL_OP_NO_RENEGOTIATION;
static const uint64_t copenssl_no_ticket = SSL_OP_NO_TICKET;
static const uint64_t copenssl_no_compression = SSL_OP_NO_COMPRESSION;
static const uint64_t copenssl_server_preference = SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA;

// Stack functions are typed by macros.
static inline int copenssl_chain_count(const STACK_OF(X509) *chain) { return chain ? sk_X509_num(chain) : 0; }
static inline X509 *copenssl_chain_certificate(const STACK_OF(X509) *chain, int index) {
  return sk_X509_value(chain, index);
}

// Returns the number of certificates loaded into `store`, without certificates that a directory may provide later.
static inline int copenssl_store_count(X509_STORE *store) {
  return sk_X509_OBJECT_num(X509_STORE_get0_objects(store));
}

// Writes the reason of an error queue entry to `text`, terminated and cut at `capacity`. For a failed system call, the
// reason is the text of its errno value.
void copenssl_reason_text(unsigned long code, char *text, int capacity);

// Returns the seconds from 1970-01-01 to `time`, or INT64_MIN if `time` cannot be read.
int64_t copenssl_unix_seconds(const ASN1_TIME *time);

// Writes the subject alternative name number `index` of `certificate` to `text` (at most `capacity` bytes, terminated)
// and returns its length. Returns 0 for a type that is not compared with hosts, and -1 after the last name.
int copenssl_alternative_name(X509 *certificate, int index, char *text, int capacity);

// Writes the DNS name or URI number `index` of the subject alternative names of `certificate` to `text`, and sets
// `*is_uri`. Returns its length; 0 for a name of another type, or with more than `capacity` bytes; and -1 after the
// last name. `text` is not terminated.
int copenssl_identity_name(X509 *certificate, int index, int *is_uri, char *text, int capacity);

// Writes a distinguished name in readable form (`CN = example.com, O = Example`), with unprintable characters escaped.
// Returns its length. `text` is terminated, and cut at `capacity`.
int copenssl_name_text(const X509_NAME *name, char *text, int capacity);

// Reads the private key in `pem`, or returns NULL. For an encrypted key, sets `*is_encrypted` instead of prompting for
// a passphrase.
EVP_PKEY *copenssl_read_private_key(BIO *pem, int *is_encrypted);

// Make public keys from big-endian numbers, without checks of their size. Return NULL if OpenSSL refuses them: for
// P-256, the point (04, x, y; 65 bytes) must be on the curve.
EVP_PKEY *copenssl_rsa_public_key(const unsigned char *modulus, size_t modulus_length, const unsigned char *exponent,
                                  size_t exponent_length);
EVP_PKEY *copenssl_p256_public_key(const unsigned char *point);
EVP_PKEY *copenssl_ed25519_public_key(const unsigned char *bytes);

// Reads the next public key (SubjectPublicKeyInfo) in `pem`, or returns NULL.
EVP_PKEY *copenssl_read_public_key(BIO *pem);

// The kind of a public key. `copenssl_other_key` is a key that the gateway does not use.
enum copenssl_key_kind { copenssl_other_key, copenssl_rsa_key, copenssl_p256_key, copenssl_ed25519_key };
enum copenssl_key_kind copenssl_kind_of_key(const EVP_PKEY *key);

// Returns the public exponent of an RSA key, or 0 if it has more than 32 bits.
uint32_t copenssl_rsa_exponent(const EVP_PKEY *key);

// Returns whether an RSA modulus is odd.
int copenssl_rsa_modulus_is_odd(const EVP_PKEY *key);

// Writes the SHA-256 of the key's SubjectPublicKeyInfo to `digest` (32 bytes). Returns 0 if OpenSSL fails.
int copenssl_key_digest(const EVP_PKEY *key, unsigned char *digest);

// Returns 1 if `signature` is the key's signature of `text`: RSA (PKCS #1 v1.5) and ECDSA with SHA-256, or Ed25519.
// ECDSA signatures are r and s, 32 bytes each (RFC 7518 section 3.4), and must be 64 bytes long. Leaves no entry in the
// error queue.
int copenssl_verify(EVP_PKEY *key, const unsigned char *signature, size_t signature_length, const unsigned char *text,
                    size_t text_length);

#endif
