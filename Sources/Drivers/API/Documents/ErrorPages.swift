import ByteStreams
import HTTPCodec

/// The pages of the problem types, `/errors/{type}`. A page explains the cause and the remedy. It is a section of
/// `docs/errors.md`, which is embedded in the program.
enum ErrorPages {
  /// Text is the first, so that a client that accepts `*/*` gets text, which a terminal can show. Browsers request HTML
  /// by name.
  static let representations = [Representation.text, .html]

  /// All pages are rendered on the first request for a page. They are kept, since rendering the document takes longer
  /// than any other request. All pages together are smaller than 100 KiB.
  private static let pages: [Problem.Kind: (text: ByteString, html: ByteString)] = {
    let document = String(decoding: PackageResources.errors_md, as: UTF8.self)
    var pages: [Problem.Kind: (text: ByteString, html: ByteString)] = [:]
    for kind in Problem.Kind.allCases {
      let blocks = section(kind.row.name.description, of: document).split(separator: "\n\n")
      pages[kind] = (ByteString(Array(text(kind, blocks).utf8)), ByteString(Array(html(kind, blocks).utf8)))
    }
    return pages
  }()

  /// - Parameter format: one of `representations`.
  static func page(_ kind: Problem.Kind, as format: Representation) -> ByteString {
    guard let page = pages[kind] else { preconditionFailure("a problem type without a page") }
    return format == .html ? page.html : page.text
  }

  private static func text(_ kind: Problem.Kind, _ blocks: [Substring]) -> String {
    "\(kind.row.name): \(kind.row.title)\n" + blocks.map { "\n\(plain($0))\n" }.joined()
  }

  private static func html(_ kind: Problem.Kind, _ blocks: [Substring]) -> String {
    "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>\(kind.row.name)</title>\n<h1>\(kind.row.title)</h1>\n<p><code>\(kind.row.name)</code></p>\n"
      + blocks.map { html($0) }.joined() + "</html>\n"
  }

  /// Returns the text under the heading `name`, or an empty text.
  private static func section(_ name: String, of document: String) -> Substring {
    let heading = "\n## \(name)\n"
    guard let start = document.firstRange(of: heading)?.upperBound else { return "" }
    let end = document[start...].firstRange(of: "\n## ")?.lowerBound ?? document.endIndex
    return document[start..<end].trimmingLineBreaks()
  }

  // MARK: The subset of Markdown that the document uses

  private static func html(_ block: Substring) -> String {
    guard block.hasPrefix("- ") else { return "<p>\(inline(block))</p>\n" }
    // A line that does not begin an item continues the previous item.
    var items: [String] = []
    for line in block.split(separator: "\n") {
      if line.hasPrefix("- ") {
        items.append(String(line.dropFirst(2)))
      } else {
        items[items.count - 1] += "\n" + line
      }
    }
    return "<ul>\n" + items.map { "<li>\(inline($0[...]))</li>\n" }.joined() + "</ul>\n"
  }

  private static func inline(_ text: Substring) -> String {
    var output = ""
    var isCode = false
    spans(of: text) { span in
      switch span {
      case .link(let label, let target): output += "<a href=\"\(escaped(target))\">\(escaped(label))</a>"
      case .codeMark:
        output += isCode ? "</code>" : "<code>"
        isCode.toggle()
      case .text(let text): output += escaped(text)
      }
    }
    return output
  }

  private static func plain(_ text: Substring) -> String {
    var output = ""
    spans(of: text) { span in
      switch span {
      case .link(let label, let target): output += "\(label) (\(target))"
      case .codeMark: output += "`"
      case .text(let text): output += text
      }
    }
    return output
  }

  private enum Span {
    case text(Substring)
    case codeMark
    case link(label: Substring, target: String)
  }

  private static func spans(of text: Substring, _ body: (Span) -> Void) {
    var rest = text
    while let mark = rest.firstIndex(where: { $0 == "`" || $0 == "[" }) {
      body(.text(rest[..<mark]))
      let after = rest[rest.index(after: mark)...]
      if rest[mark] == "[", let middle = after.firstRange(of: "]("),
        let end = after[middle.upperBound...].firstIndex(of: ")")
      {
        body(linked(after[..<middle.lowerBound], to: after[middle.upperBound..<end]))
        rest = after[after.index(after: end)...]
      } else {
        body(rest[mark] == "`" ? .codeMark : .text("["))
        rest = after
      }
    }
    body(.text(rest))
  }

  /// Returns a link. Links to other problem types lead to pages of this server. Other documents are not served, so a
  /// link to such a document is replaced by its file name.
  private static func linked(_ label: Substring, to target: Substring) -> Span {
    if target.hasPrefix("#") { return .link(label: label, target: "/errors/" + target.dropFirst()) }
    return .text("\(label) (docs/\(target.prefix { $0 != "#" }))"[...])
  }

  private static func escaped(_ text: some StringProtocol) -> String {
    var output = ""
    for character in text {
      switch character {
      case "&": output += "&amp;"
      case "<": output += "&lt;"
      case ">": output += "&gt;"
      case "\"": output += "&quot;"
      default: output.append(character)
      }
    }
    return output
  }
}

extension Substring {
  fileprivate func trimmingLineBreaks() -> Substring {
    var text = self
    while text.first == "\n" { text.removeFirst() }
    while text.last == "\n" { text.removeLast() }
    return text
  }
}
