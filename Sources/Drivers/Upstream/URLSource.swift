import ByteStreams
import JSONCodec
import WebSocketCodec

/// The file or command that returns the URL of the upstream (`upstream.url.file`, `upstream.url.command`). It is read
/// for each connection attempt, since the URL changes.
package struct URLSource: Hashable, Sendable {
  /// At most one of `file` and `command` is set.
  package var file = ""
  /// A program and its arguments. It runs without a shell.
  package var command: [String] = []
  /// Timeout of `command`.
  package var timeout = TimeSpan.seconds(10)
  /// The place of the URL in the content, which is JSON; nil if the content is the URL.
  package var pointer: JSONPointer?
  /// The place of the service's error in the content, which is shown if the content has no URL; nil if no part of the
  /// content is shown.
  package var errorPointer: JSONPointer?

  package init() {}

  /// Maximum size of the content, in bytes. Chromium's list of targets has about 600 bytes for each tab, and the URL of
  /// a tab may have several thousand. This is enough for hundreds of tabs.
  package static let maximumBytes = 1 << 20
  /// Maximum size of the URL, in bytes. A loop parses it, and searches the texts of the upstream for its parts.
  package static let maximumURLBytes = 64 << 10
  /// Maximum size of the error that is shown, in bytes.
  private static var maximumErrorBytes: Int { 256 }

  /// Whether both return the URL of the same client. The timeout does not matter.
  func isSameSource(as other: URLSource) -> Bool {
    file == other.file && command == other.command && pointer == other.pointer
  }

  package var isSet: Bool { !file.isEmpty || !command.isEmpty }

  /// What was read, for messages. It contains no argument of the command, since an argument may be a secret.
  package var name: String {
    command.isEmpty
      ? "file '\(file)' of 'upstream.url.file'" : "the output of '\(command[0])' ('upstream.url.command')"
  }

  private func error(in content: [UInt8], at pointer: JSONPointer) -> String? {
    guard let text = pointer.content(in: content.span), !text.isEmpty else { return nil }
    return PrintableText.escaped(text.span.extracting(first: Self.maximumErrorBytes).text())
  }

  /// Returns the URL in the content. A line break after the URL is not part of it. The error repeats only the text at
  /// `errorPointer`, since the content may be a secret.
  package func url(in content: [UInt8]) throws(URLSourceError) -> WebSocketURL {
    guard content.count <= Self.maximumBytes else { throw .tooLong }
    var text = content
    if let pointer {
      guard let value = pointer.content(in: content.span), !value.isEmpty else {
        throw .noValue(pointer, error: errorPointer.flatMap { error(in: content, at: $0) })
      }
      text = value
    } else {
      if text.last == UInt8(ascii: "\n") { text.removeLast() }
      if text.last == UInt8(ascii: "\r") { text.removeLast() }
    }
    guard !text.isEmpty else { throw .empty }
    guard text.count <= Self.maximumURLBytes else { throw .urlTooLong }
    do throws(WebSocketURLError) {
      // A URL that is issued for one connection is often a secret as a whole.
      return try WebSocketURL(String(decoding: text, as: UTF8.self)).withSecretPath
    } catch {
      throw .invalid(error)
    }
  }
}

/// Why a content has no URL. The description continues a sentence that begins with the name of the source.
package enum URLSourceError: Error, Equatable, Sendable, CustomStringConvertible {
  case empty
  case tooLong
  case urlTooLong
  /// `error`: what the service says about it.
  case noValue(JSONPointer, error: String?)
  case invalid(WebSocketURLError)

  package var description: String {
    switch self {
    case .empty: "is empty: it must be the URL"
    case .tooLong: "has more than \(URLSource.maximumBytes) bytes"
    case .urlTooLong: "has a URL of more than \(URLSource.maximumURLBytes) bytes"
    case .noValue(let pointer, nil): "has no text at '\(pointer)' ('upstream.url.pointer')"
    case .noValue(let pointer, let error?):
      "has no text at '\(pointer)' ('upstream.url.pointer'), but the error: \(error)"
    case .invalid(.wrongScheme): "is not a valid URL: it must begin with ws:// or wss://"
    case .invalid(let error): "is not a valid URL: \(error)"
    }
  }
}

extension UpstreamSettings {
  /// Whether a URL is configured, or the file or command from which each attempt reads its URL.
  package var hasURL: Bool { url != nil || urlSource.isSet }
}
