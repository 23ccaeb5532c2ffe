import ByteStreams
import Testing

@Suite struct ByteSizeTests {
  @Test(arguments: [("0", 0), ("512", 512), ("64KiB", 65_536), ("16MiB", 16 << 20), ("1GiB", 1 << 30)])
  func readsSizes(text: String, bytes: Int) { #expect(ByteSize.parse(text) == bytes) }

  @Test(arguments: ["", "-1", "1.5MiB", "16mb", "KiB", "99999999999999999999"])
  func refusesOtherSizes(text: String) { #expect(ByteSize.parse(text) == nil) }
}
