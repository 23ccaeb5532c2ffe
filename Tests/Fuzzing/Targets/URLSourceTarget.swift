import ByteStreams
import JSONCodec
import Upstream
import WebSocketCodec

/// The file or the output of a command with the upstream's URL.
///
/// Input: a byte that chooses whether the content is JSON, and whether an error in it is shown, then the content.
enum URLSourceTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    var reader = InputReader(input)
    var source = URLSource()
    source.command = ["program", "s3cret"]
    let choice = reader.byte()
    source.pointer = choice % 2 == 0 ? nil : JSONPointer("/url")
    source.errorPointer = choice % 4 == 3 ? JSONPointer("/error") : nil
    let content = [UInt8](copying: reader.rest)
    let url: WebSocketURL
    do throws(URLSourceError) {
      url = try source.url(in: content)
    } catch {
      // One text has an example of a name with a letter outside ASCII.
      let text = "\(source.name) \(error)".replacing(" for bücher.example", with: "")
      if case .noValue(_, error: .some) = error {
        let isPrintable = text.unicodeScalars.allSatisfy { $0.value >= 0x20 && !(0x7F...0x9F).contains($0.value) }
        try require(isPrintable && text.utf8.count < 4_096, "the log would contain '\(text)'")
      } else {
        try require(text.utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7F }, "the error repeats a part of the content")
      }
      return
    }
    let request = ClientHandshake.Request(target: url.target, host: url.hostField)
    if let problem = request.problem { throw Finding("the URL does not allow a request: \(problem)") }
    // A path may contain '@'.
    let authority = url.redacted.split(separator: "/", maxSplits: 2)[1]
    try require(!url.redacted.contains("?") && !authority.contains("@"), "the log would contain '\(url.redacted)'")
    guard source.pointer == nil else { return }
    try require(
      content.dropLast(2).allSatisfy { $0 > 0x20 && $0 < 0x7F }, "the URL has a character that must be encoded")
  }
}
