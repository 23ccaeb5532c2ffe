import COpenSSL

extension TLSConnection {
  /// Converts OpenSSL's error queue, after a call that failed, to a `TLSError`.
  func classifiedFailure() -> TLSError {
    let entry = ErrorQueue.drain()
    if let verificationFailure { return verificationFailure }
    guard let entry else { return .protocolViolation(reason: "OpenSSL reported no reason") }
    guard entry.library == ERR_LIB_SSL else { return .protocolViolation(reason: entry.text) }
    switch entry.reason {
    case SSL_R_HTTP_REQUEST where isServer && isExpectingHello: return .plainHTTP
    case SSL_R_WRONG_VERSION_NUMBER, SSL_R_HTTP_REQUEST, SSL_R_PACKET_LENGTH_TOO_LONG:
      // If the peer has sent a valid hello, it does speak TLS, so this is a protocol violation.
      return isExpectingHello ? .notTLS : .protocolViolation(reason: entry.text)
    case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC: return .badRecord
    case SSL_R_UNSUPPORTED_PROTOCOL: return versionUnsupported
    case SSL_R_NO_SHARED_CIPHER, SSL_R_NO_APPLICATION_PROTOCOL, SSL_R_NO_SUITABLE_KEY_SHARE, SSL_R_NO_SHARED_GROUPS,
      SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
      return .nothingInCommon(reason: entry.text)
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE: return .noClientCertificate
    case SSL_AD_REASON_OFFSET...SSL_AD_REASON_OFFSET + 255:
      return refusal(TLSAlert(code: UInt8(truncatingIfNeeded: entry.reason - SSL_AD_REASON_OFFSET)))
    default: return .protocolViolation(reason: entry.text)
    }
  }

  private var isServer: Bool { if case .server = role { true } else { false } }

  /// Whether no valid hello of the peer has been received yet. Until then, a client is in the state after its own
  /// hello.
  private var isExpectingHello: Bool {
    let state = unsafe SSL_get_state(raw)
    return isServer ? state == TLS_ST_BEFORE || state == TLS_ST_SR_CLNT_HELLO : state == TLS_ST_CW_CLNT_HELLO
  }

  private var versionUnsupported: TLSError {
    switch role {
    case .client(let context, _):
      .versionUnsupported(minimum: context.settings.minimumVersion, maximum: context.settings.maximumVersion)
    case .server(let context): .versionUnsupported(minimum: context.settings.minimumVersion, maximum: .v1_3)
    }
  }

  private func refusal(_ alert: TLSAlert) -> TLSError {
    guard case .client(let context, _) = role else { return .alert(alert) }
    let hasCertificate = context.settings.clientCertificate != nil
    switch alert {
    case .protocolVersion: return versionUnsupported
    case .certificateRequired where !hasCertificate: return .clientCertificateRequired
    // TLS 1.2 has no specific alert for this.
    case .handshakeFailure where wasCertificateRequested && !hasCertificate: return .clientCertificateRequired
    default: return .alert(alert)
    }
  }
}
