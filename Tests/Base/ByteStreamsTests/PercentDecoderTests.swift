import ByteStreams
import Testing

@Suite struct PercentDecoderTests {
  /// RFC 3986 §6.2.2.2.
  @Test(arguments: [
    ("/v1/%6Dess%61ges", "/v1/messages"), ("/%2D%2e%5f%7E%30", "/-._~0"), ("/a%2Fb%2f%25%41", "/a%2Fb%2f%25A"),
    ("/%00%c3%A9%20%7f%80", "/%00%c3%A9%20%7f%80"), ("/a+b", "/a+b"), ("", ""), ("/%", "/%"), ("/%4", "/%4"),
    ("/%zz%41", "/%zzA"), ("/%2541", "/%2541"),
  ])
  func decodesOnlyUnreservedCharacters(path: String, expected: String) {
    var output = ByteQueue()
    PercentDecoder.decodeUnreserved(Array(path.utf8).span, into: &output)
    let text = output.bytes.text()
    #expect(text == expected)
  }
}
