import COpenSSL

extension TLSConnection {
  /// Converts OpenSSL's error queue, after a call that failed, to one of our errors.
  func classifiedFailure() -> TLSError {
    let entry = ErrorQueue.drain()
    if let verificationFailure { return verificationFailure }
    guard let entry else { return .protocolViolation(reason: "OpenSSL reported no reason") }
    guard entry.library == ERR_LIB_SSL else { return .protocolViolation(reason: entry.text) }
    switch entry.reason {
    case SSL_R_WRONG_VERSION_NUMBER, SSL_R_HTTP_REQUEST, SSL_R_PACKET_LENGTH_TOO_LONG:
      // After a valid ServerHello this is a protocol violation, since the peer does speak TLS.
      return hasReceivedServerHello ? .protocolViolation(reason: entry.text) : .notTLS
    case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC: return .badRecord
    case SSL_R_UNSUPPORTED_PROTOCOL: return versionUnsupported
    case SSL_AD_REASON_OFFSET...SSL_AD_REASON_OFFSET + 255:
      return refusal(TLSAlert(code: UInt8(truncatingIfNeeded: entry.reason - SSL_AD_REASON_OFFSET)))
    default: return .protocolViolation(reason: entry.text)
    }
  }

  /// Whether a valid ServerHello has been received. Until then the state is that of the ClientHello.
  private var hasReceivedServerHello: Bool { unsafe SSL_get_state(raw) != TLS_ST_CW_CLNT_HELLO }

  private var versionUnsupported: TLSError {
    .versionUnsupported(minimum: context.settings.minimumVersion, maximum: context.settings.maximumVersion)
  }

  private func refusal(_ alert: TLSAlert) -> TLSError {
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
