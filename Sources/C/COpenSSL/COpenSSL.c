// Selects the POSIX version of strerror_r instead of the GNU one.
#define _POSIX_C_SOURCE 200809L
#include "COpenSSL.h"

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
