import ByteStreams
import HTTPCodec
import Host
import ProxyCodec
import TLSEngine
import Upstream
import UpstreamSession
import WebSocketCodec

/// URLs, addresses, header fields and other formats of network standards.

private let urlExample = "ws://127.0.0.1:9000/ or wss://example.org/socket"

/// Reads a URL. The error names the mistake, or gives an example if the text does not look like a URL.
private func readURL(_ text: String) throws(InvalidValue) -> WebSocketURL {
  do throws(WebSocketURLError) {
    return try WebSocketURL(text)
  } catch {
    switch error {
    case .noScheme, .wrongScheme, .authority(.badCharacter): throw InvalidValue()
    case .fragment, .authority: throw InvalidValue(reason: error.description)
    }
  }
}

extension ValueFormat where Value == WebSocketURL? {
  /// A URL. An empty text means that there is no URL (nil).
  static var webSocketURL: ValueFormat {
    ValueFormat(
      expectation: "a URL such as " + urlExample, isURL: true,
      reader: .scalar { text throws(InvalidValue) in text.isEmpty ? nil : try readURL(text) },
      format: { PrintableText.quoted($0?.text ?? "") })
  }
}

extension ValueFormat where Value == [WebSocketURL] {
  static var webSocketURLs: ValueFormat {
    .list("URLs such as " + urlExample, isURL: true, read: readURL, format: \.text)
  }
}

extension ValueFormat where Value == ProxyURL? {
  /// A proxy's URL. An empty text means that there is no proxy (nil).
  static var proxyURL: ValueFormat {
    ValueFormat(
      expectation: "a URL such as http://proxy.example:3128 or socks5h://127.0.0.1:9050",
      reader: .scalar { text throws(InvalidValue) in
        if text.isEmpty { return nil }
        do throws(ProxyURLError) {
          return try ProxyURL(text)
        } catch {
          throw InvalidValue(reason: error.description)
        }
      }, format: { PrintableText.quoted($0?.text ?? "") })
  }
}

extension ValueFormat where Value == ProxyBypass {
  static var proxyBypass: ValueFormat {
    ValueFormat(
      expectation: "a list", schema: .texts,
      reader: .list(isMapping: false) { texts throws(InvalidValue) in
        do throws(ProxyBypassError) {
          return try ProxyBypass(texts)
        } catch {
          throw InvalidValue(index: error.index, reason: ProxyBypassError.expectation)
        }
      }, format: { StructureText.list($0.texts) })
  }
}

extension ValueFormat where Value == [RequestField] {
  /// `Name: value` pairs.
  static var fields: ValueFormat {
    .list("header fields, each as 'Name: value'", isMapping: true) { line throws(InvalidValue) in
      guard let colon = line.firstIndex(of: ":"), colon != line.startIndex,
        line[..<colon].utf8.allSatisfy(ASCII.isToken),
        line.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F || $0 == 0x09 })
      else { throw InvalidValue() }
      return RequestField(
        name: String(line[..<colon]), value: String(line[line.index(after: colon)...].drop { $0 == " " }))
    } format: {
      "\($0.name): \($0.value)"
    }
  }
}

extension ValueFormat where Value == UInt16 {
  /// A code that a close frame of the gateway may have before it connects again.
  static var closeCode: ValueFormat {
    .scalar(
      "1000, or a code from 3000 to 4999", schema: .integer(1000...4999),
      read: { UInt16($0).flatMap { $0 == 1000 || (3000...4999).contains($0) ? $0 : nil } }, format: { String($0) })
  }
}

extension ValueFormat where Value == [CloseRules.Rule] {
  /// `4000-4099: park` pairs.
  static var closeRules: ValueFormat {
    ValueFormat(
      expectation: CloseRules.expectation,
      schema: .pairs(.words(CloseReaction.allCases.map(\.rawValue)), orLines: true),
      reader: .list(isMapping: true) { lines throws(InvalidValue) in
        var rules: [CloseRules.Rule] = []
        for (index, line) in lines.enumerated() {
          guard let rule = CloseRules.rule(line) else { throw InvalidValue(index: index) }
          rules.append(rule)
        }
        return rules
      }, format: { "{" + $0.map(CloseRules.text).joined(separator: ", ") + "}" })
  }
}

extension ValueFormat where Value == [PublicKeyPin] {
  static var pins: ValueFormat {
    .list { text throws(InvalidValue) in
      guard let pin = PublicKeyPin(text) else {
        throw InvalidValue(reason: "use the base64 of the SHA-256 of a public key, 44 characters")
      }
      return pin
    } format: {
      $0.base64
    }
  }
}

extension ValueFormat where Value == [String] {
  /// Names and addresses as in Host, without port.
  static var hosts: ValueFormat {
    .list { text throws(InvalidValue) in
      let hasPort = text.hasPrefix("[") ? !text.hasSuffix("]") : text.contains(":")
      guard isHostAndPort(Array(text.utf8).span), !hasPort else {
        throw InvalidValue(
          reason: "use a name or an address without scheme and port, such as gateway.example.org")
      }
      return text
    } format: {
      $0
    }
  }

  /// Origins as browsers send them (RFC 6454 §6.2).
  static var origins: ValueFormat {
    .list { text throws(InvalidValue) in
      guard let url = URLParts(text), url.path.isEmpty, isHostAndPort(Array(url.authority.utf8).span) else {
        throw InvalidValue(
          reason: "use scheme://host or scheme://host:port, such as https://app.example.org")
      }
      return text
    } format: {
      $0
    }
  }
}

extension ValueFormat where Value == TrustedProxies {
  static var trustedProxies: ValueFormat {
    ValueFormat(
      expectation: "a list", schema: .texts,
      reader: .list(isMapping: false) { texts throws(InvalidValue) in
        var proxies = TrustedProxies()
        for (index, text) in texts.enumerated() where !proxies.add(text) {
          throw InvalidValue(index: index, reason: TrustedProxies.expectation)
        }
        return proxies
      }, format: { StructureText.list($0.texts) })
  }
}

/// Returns false for a host with an asterisk. An asterisk is legal in a host name, but an operator who writes it means
/// a pattern.
private func isHostAndPort(_ text: Span<UInt8>) -> Bool {
  !text.isEmpty && text.isHostAndPort() && text.firstIndex(of: UInt8(ascii: "*")) == nil
}

extension ValueFormat where Value == SocketAddress? {
  /// The IP address and the port at which other machines reach this machine. An empty text means that they are not set
  /// (nil).
  static var ownAddress: ValueFormat {
    ValueFormat(
      expectation: "an IP address of this machine and a port, such as 10.0.0.5:9091",
      reader: .scalar { text throws(InvalidValue) in
        if text.isEmpty { return nil }
        guard let address = ListenerAddress.parse(text), let ip = address.ip, !ip.isUnspecified, address.port != 0
        else {
          throw InvalidValue()
        }
        return address
      }, format: { PrintableText.quoted($0?.description ?? "") })
  }
}

extension ValueFormat where Value == [SocketAddress] {
  static var listeners: ValueFormat {
    .list { text throws(InvalidValue) in
      guard let address = ListenerAddress.parse(text) else {
        throw InvalidValue(reason: "use \(ListenerAddress.expectation)")
      }
      return address
    } format: {
      $0.description
    }
  }
}
