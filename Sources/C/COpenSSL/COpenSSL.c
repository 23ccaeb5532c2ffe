// Selects the POSIX version of strerror_r instead of the GNU version.
#define _POSIX_C_SOURCE 200809L
#include "COpenSSL.h"

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <string.h>

void copenssl_reason_text(unsigned long code, char *text, int capacity) {
  if (ERR_SYSTEM_ERROR(code) && strerror_r(ERR_GET_REASON(code), text, (size_t)capacity) == 0) return;
  const char *reason = ERR_reason_error_string(code);
  if (reason != NULL)
    BIO_snprintf(text, (size_t)capacity, "%s", reason);
  else
    BIO_snprintf(text, (size_t)capacity, "error %lx", code);
}

int64_t copenssl_unix_seconds(const ASN1_TIME *time) {
  int days = 0, seconds = 0;
  ASN1_TIME *epoch = ASN1_TIME_set(NULL, 0);
  int known = epoch != NULL && time != NULL && ASN1_TIME_diff(&days, &seconds, epoch, time);
  ASN1_TIME_free(epoch);
  return known ? (int64_t)days * 86400 + seconds : INT64_MIN;
}

int copenssl_alternative_name(X509 *certificate, int index, char *text, int capacity) {
  GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
  int length = index < sk_GENERAL_NAME_num(names) ? 0 : -1;
  if (length == 0) {
    const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, index);
    if (name->type == GEN_DNS) {
      int given = ASN1_STRING_length(name->d.dNSName);
      length = given < capacity ? given : capacity - 1;
      memcpy(text, ASN1_STRING_get0_data(name->d.dNSName), (size_t)length);
      text[length] = 0;
    } else if (name->type == GEN_IPADD) {
      const unsigned char *address = ASN1_STRING_get0_data(name->d.iPAddress);
      switch (ASN1_STRING_length(name->d.iPAddress)) {
      case 4:
        length = BIO_snprintf(text, (size_t)capacity, "%d.%d.%d.%d", address[0], address[1], address[2], address[3]);
        break;
      case 16:
        for (int group = 0; group < 8; group++)
          length += BIO_snprintf(text + length, (size_t)(capacity - length), group ? ":%x" : "%x",
                                 address[2 * group] << 8 | address[2 * group + 1]);
        break;
      }
    }
  }
  sk_GENERAL_NAME_pop_free(names, GENERAL_NAME_free);
  return length;
}

int copenssl_identity_name(X509 *certificate, int index, int *is_uri, char *text, int capacity) {
  GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
  int length = index < sk_GENERAL_NAME_num(names) ? 0 : -1;
  if (length == 0) {
    const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, index);
    *is_uri = name->type == GEN_URI;
    if (name->type == GEN_DNS || name->type == GEN_URI) {
      length = ASN1_STRING_length(name->d.ia5);
      if (length > capacity) length = 0;
      memcpy(text, ASN1_STRING_get0_data(name->d.ia5), (size_t)length);
    }
  }
  sk_GENERAL_NAME_pop_free(names, GENERAL_NAME_free);
  return length;
}

int copenssl_name_text(const X509_NAME *name, char *text, int capacity) {
  BIO *memory = BIO_new(BIO_s_mem());
  int length = 0;
  if (memory != NULL && name != NULL && X509_NAME_print_ex(memory, name, 0, XN_FLAG_ONELINE) >= 0)
    length = BIO_read(memory, text, capacity - 1);
  if (length < 0) length = 0;
  text[length] = 0;
  BIO_free(memory);
  return length;
}

static int refuse_passphrase(char *buffer, int size, int writing, void *is_encrypted) {
  (void)buffer, (void)size, (void)writing;
  *(int *)is_encrypted = 1;
  return -1;
}

EVP_PKEY *copenssl_read_private_key(BIO *pem, int *is_encrypted) {
  *is_encrypted = 0;
  return PEM_read_bio_PrivateKey(pem, NULL, refuse_passphrase, is_encrypted);
}

static EVP_PKEY *public_key(const char *type, OSSL_PARAM *parameters) {
  EVP_PKEY *key = NULL;
  EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
  if (context != NULL && EVP_PKEY_fromdata_init(context) == 1 &&
      EVP_PKEY_fromdata(context, &key, EVP_PKEY_PUBLIC_KEY, parameters) != 1)
    key = NULL;
  EVP_PKEY_CTX_free(context);
  ERR_clear_error();
  return key;
}

EVP_PKEY *copenssl_rsa_public_key(const unsigned char *modulus, size_t modulus_length, const unsigned char *exponent,
                                  size_t exponent_length) {
  EVP_PKEY *key = NULL;
  OSSL_PARAM *parameters = NULL;
  BIGNUM *n = BN_bin2bn(modulus, (int)modulus_length, NULL);
  BIGNUM *e = BN_bin2bn(exponent, (int)exponent_length, NULL);
  OSSL_PARAM_BLD *builder = OSSL_PARAM_BLD_new();
  if (n != NULL && e != NULL && builder != NULL && OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_N, n) &&
      OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_E, e))
    parameters = OSSL_PARAM_BLD_to_param(builder);
  if (parameters != NULL) key = public_key("RSA", parameters);
  OSSL_PARAM_free(parameters);
  OSSL_PARAM_BLD_free(builder);
  BN_free(n);
  BN_free(e);
  return key;
}

EVP_PKEY *copenssl_p256_public_key(const unsigned char *point) {
  char group[] = "prime256v1";
  unsigned char copy[65];
  memcpy(copy, point, sizeof copy);
  OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, group, 0),
      OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PUB_KEY, copy, sizeof copy),
      OSSL_PARAM_construct_end(),
  };
  return public_key("EC", parameters);
}

EVP_PKEY *copenssl_ed25519_public_key(const unsigned char *bytes) {
  return EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, bytes, 32);
}

EVP_PKEY *copenssl_read_public_key(BIO *pem) {
  EVP_PKEY *key = PEM_read_bio_PUBKEY(pem, NULL, NULL, NULL);
  ERR_clear_error();
  return key;
}

enum copenssl_key_kind copenssl_kind_of_key(const EVP_PKEY *key) {
  char group[32];
  if (EVP_PKEY_is_a(key, "RSA")) return copenssl_rsa_key;
  if (EVP_PKEY_is_a(key, "ED25519")) return copenssl_ed25519_key;
  if (EVP_PKEY_is_a(key, "EC") && EVP_PKEY_get_group_name(key, group, sizeof group, NULL) == 1 &&
      strcmp(group, "prime256v1") == 0)
    return copenssl_p256_key;
  ERR_clear_error();
  return copenssl_other_key;
}

uint32_t copenssl_rsa_exponent(const EVP_PKEY *key) {
  BIGNUM *exponent = NULL;
  uint32_t value = 0;
  if (EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_E, &exponent) == 1 && BN_num_bits(exponent) <= 32)
    value = (uint32_t)BN_get_word(exponent);
  BN_free(exponent);
  return value;
}

int copenssl_rsa_modulus_is_odd(const EVP_PKEY *key) {
  BIGNUM *modulus = NULL;
  int odd = EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_N, &modulus) == 1 && BN_is_odd(modulus);
  BN_free(modulus);
  return odd;
}

int copenssl_key_digest(const EVP_PKEY *key, unsigned char *digest) {
  unsigned char *encoding = NULL;
  int length = i2d_PUBKEY(key, &encoding);
  int done = length > 0 && EVP_Digest(encoding, (size_t)length, digest, NULL, EVP_sha256(), NULL) == 1;
  OPENSSL_free(encoding);
  if (!done) ERR_clear_error();
  return done;
}

// Encodes r and s in the form that OpenSSL expects. Returns the length, or -1. The caller frees `*encoding`.
static int encode_ecdsa_signature(const unsigned char *signature, unsigned char **encoding) {
  int length = -1;
  ECDSA_SIG *pair = ECDSA_SIG_new();
  BIGNUM *r = BN_bin2bn(signature, 32, NULL), *s = BN_bin2bn(signature + 32, 32, NULL);
  if (pair != NULL && r != NULL && s != NULL && ECDSA_SIG_set0(pair, r, s) == 1) {
    // The signature object owns r and s now.
    r = s = NULL;
    length = i2d_ECDSA_SIG(pair, encoding);
  }
  BN_free(r);
  BN_free(s);
  ECDSA_SIG_free(pair);
  return length;
}

int copenssl_verify(EVP_PKEY *key, const unsigned char *signature, size_t signature_length, const unsigned char *text,
                    size_t text_length) {
  enum copenssl_key_kind kind = copenssl_kind_of_key(key);
  const EVP_MD *digest = kind == copenssl_ed25519_key ? NULL : EVP_sha256();
  unsigned char *encoding = NULL;
  if (kind == copenssl_p256_key) {
    int length = signature_length == 64 ? encode_ecdsa_signature(signature, &encoding) : -1;
    signature_length = length > 0 ? (size_t)length : 0;
    signature = encoding;
  }
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  int valid = kind != copenssl_other_key && signature != NULL && signature_length > 0 && context != NULL &&
              EVP_DigestVerifyInit(context, NULL, digest, NULL, key) == 1 &&
              EVP_DigestVerify(context, signature, signature_length, text, text_length) == 1;
  EVP_MD_CTX_free(context);
  OPENSSL_free(encoding);
  if (!valid) ERR_clear_error();
  return valid;
}
