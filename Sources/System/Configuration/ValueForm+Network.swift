import ByteStreams
import HTTPCodec
import ProxyCodec
import Reactor
import TLSEngine
import UpstreamSession
import WebSocketCodec

/// URLs, addresses, fields and what else comes from the network's standards.

private let urlExample = "ws://127.0.0.1:9000/ or wss://example.org/socket"

/// Reads a URL. What is not one at all gets the example, and a URL with a mistake the mistake.
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

extension ValueForm where Value == WebSocketURL? {
  /// A URL, or nothing.
  static var webSocketURL: ValueForm {
    ValueForm(
      expectation: "a URL such as " + urlExample, isURL: true,
      reader: .scalar { text throws(InvalidValue) in text.isEmpty ? nil : try readURL(text) },
      show: { PrintableText.quoted($0?.text ?? "") })
  }
}

extension ValueForm where Value == [WebSocketURL] {
  static var webSocketURLs: ValueForm { .list("URLs such as " + urlExample, isURL: true, read: readURL, show: \.text) }
}

extension ValueForm where Value == ProxyURL? {
  /// A proxy's URL, or nothing.
  static var proxyURL: ValueForm {
    ValueForm(
      expectation: "a URL such as http://proxy.example:3128 or socks5h://127.0.0.1:9050",
      reader: .scalar { text throws(InvalidValue) in
        if text.isEmpty { return nil }
        do throws(ProxyURLError) {
          return try ProxyURL(text)
        } catch {
          throw InvalidValue(reason: error.description)
        }
      }, show: { PrintableText.quoted($0?.text ?? "") })
  }
}

extension ValueForm where Value == ProxyBypass {
  static var proxyBypass: ValueForm {
    ValueForm(
      expectation: "a list",
      reader: .list(isMapping: false) { texts throws(InvalidValue) in
        do throws(ProxyBypassError) {
          return try ProxyBypass(texts)
        } catch {
          throw InvalidValue(index: error.index, reason: ProxyBypassError.expectation)
        }
      }, show: { "[" + $0.texts.map(PrintableText.quoted).joined(separator: ", ") + "]" })
  }
}

extension ValueForm where Value == [RequestField] {
  /// `Name: value` pairs.
  static var fields: ValueForm {
    .list("fields as 'Name: value'", isMapping: true) { line throws(InvalidValue) in
      guard let colon = line.firstIndex(of: ":"), colon != line.startIndex,
        line[..<colon].utf8.allSatisfy(ASCII.isToken),
        line.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F || $0 == 0x09 })
      else { throw InvalidValue() }
      return RequestField(
        name: String(line[..<colon]), value: String(line[line.index(after: colon)...].drop { $0 == " " }))
    } show: {
      "\($0.name): \($0.value)"
    }
  }
}

extension ValueForm where Value == [CloseRules.Rule] {
  /// `4000-4099: park` pairs.
  static var closeRules: ValueForm {
    ValueForm(
      expectation: CloseRules.expectation,
      reader: .list(isMapping: true) { lines throws(InvalidValue) in
        var rules: [CloseRules.Rule] = []
        for (index, line) in lines.enumerated() {
          guard let rule = CloseRules.rule(line) else { throw InvalidValue(index: index) }
          rules.append(rule)
        }
        return rules
      }, show: { "{" + $0.map(CloseRules.text).joined(separator: ", ") + "}" })
  }
}

extension ValueForm where Value == [PublicKeyPin] {
  static var pins: ValueForm {
    .list { text throws(InvalidValue) in
      guard let pin = PublicKeyPin(text) else {
        throw InvalidValue(reason: "it takes the SHA-256 of a public key: 44 characters of base64")
      }
      return pin
    } show: {
      $0.base64
    }
  }
}

extension ValueForm where Value == [String] {
  /// Names and addresses as they stand in Host, without port.
  static var hosts: ValueForm {
    .list { text throws(InvalidValue) in
      let hasPort = text.hasPrefix("[") ? !text.hasSuffix("]") : text.contains(":")
      guard isHostAndPort(Array(text.utf8).span), !hasPort else {
        throw InvalidValue(
          reason: "it takes a name or an address without scheme and port, such as gateway.example.org")
      }
      return text
    } show: {
      $0
    }
  }

  /// Origins as browsers send them (RFC 6454 §6.2).
  static var origins: ValueForm {
    .list { text throws(InvalidValue) in
      guard let end = text.firstRange(of: "://"), URICharacter.isScheme(text[..<end.lowerBound]),
        isHostAndPort(Array(text[end.upperBound...].utf8).span)
      else {
        throw InvalidValue(
          reason: "it takes scheme://host or scheme://host:port, such as https://app.example.org")
      }
      return text
    } show: {
      $0
    }
  }
}

/// An asterisk is legal in a host name, but a setting that contains one is meant as a pattern.
private func isHostAndPort(_ text: Span<UInt8>) -> Bool {
  !text.isEmpty && text.isHostAndPort() && text.firstIndex(of: UInt8(ascii: "*")) == nil
}

extension ValueForm where Value == [SocketAddress] {
  static var listeners: ValueForm {
    .list { text throws(InvalidValue) in
      guard let address = ListenerAddress.parse(text) else {
        throw InvalidValue(reason: "it takes \(ListenerAddress.expectation)")
      }
      return address
    } show: {
      $0.description
    }
  }
}
