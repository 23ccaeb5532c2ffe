import ByteStreams
import Testing

@Suite struct TimestampWriterTests {
  @Test(arguments: [
    (0, "1970-01-01T00:00:00.000Z"), (1_795_253_400_125, "2026-11-21T09:30:00.125Z"), (-1, "1969-12-31T23:59:59.999Z"),
    (253_402_300_799_999, "9999-12-31T23:59:59.999Z"), (253_402_300_800_000, "9999-12-31T23:59:59.999Z"),
    (Int64.max, "9999-12-31T23:59:59.999Z"), (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
    (Int64.min, "0001-01-01T00:00:00.000Z"),
  ])
  func writesFourDigitsOfTheYearWhateverTheClockSays(milliseconds: Int64, text: String) {
    var writer = TimestampWriter()
    var output = ByteQueue()
    writer.write(milliseconds: milliseconds, into: &output)
    let written = output.bytes.text()
    #expect(written == text)
  }
}
