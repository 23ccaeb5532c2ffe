import ByteStreams
import Testing

@testable import drawbridge

/// The parser of command lines, and the texts that it derives from the declarations.
@Suite struct ArgumentsTests {
  private static let ttl = Flag("ttl", .duration, "how long")
  private static let topic = Flag("topic", .text("TOPIC"), "which", isRepeatable: true)
  private static let count = Flag("count", .number(1...9), "how many")
  private static let format = Flag("format", .choice(["text", "json"]), "for whom")
  private static let watch = Flag("watch", .none, "again and again")

  private static func command(_ operands: Int = 1, runsCommand: Bool = false) -> Command {
    Command(
      "try", operands: (0..<operands).map { .init("WORD\($0)") }, runsCommand: runsCommand, summary: "try",
      purpose: "try.",
      examples: ["drawbridge try"], flags: [ttl, topic, count, format, watch], exitCodes: [.ok]
    ) { _ in 0 }
  }

  private static func parse(
    _ words: String..., operands: Int = 1, runsCommand: Bool = false
  ) throws(UsageError) -> Arguments {
    try Arguments(command(operands, runsCommand: runsCommand), words[...])
  }

  @Test func readsFlagsInBothForms() throws {
    let arguments = try Self.parse(
      "--ttl", "90s", "word", "--topic=a", "--watch", "--topic", "b=c", "--count", "1", "--count=3")
    #expect(arguments.duration(Self.ttl) == .seconds(90))
    #expect(arguments.all(Self.topic) == ["a", "b=c"])
    #expect(arguments.number(Self.count) == 3)
    #expect(arguments.has(Self.watch))
    #expect(!arguments.has(Self.format))
    #expect(arguments.operands == ["word"])
  }

  @Test func aDashIsAnOperandAndTwoDashesEndTheFlags() throws {
    #expect(try Self.parse("-").operands == ["-"])
    #expect(try Self.parse("--watch", "--", "--ttl").operands == ["--ttl"])
    let work = try Self.parse("name", "--watch", "--", "sh", "-c", "--ttl", runsCommand: true)
    #expect(work.operands == ["name"])
    #expect(work.commandToRun == ["sh", "-c", "--ttl"])
  }

  @Test(arguments: [
    (["--topik", "a"], "did you mean '--topic'?"), (["--ttl"], "needs a value"), (["--ttl", "fast"], "500ms"),
    (["--count", "10"], "from 1 to 9"), (["--count", "+1"], "from 1 to 9"), (["--format", "xml"], "text, json"),
    (["--watch=yes"], "takes no value"), (["a", "b"], "unexpected argument 'b'"), (["-x"], "unexpected argument '-x'"),
    (["--upstream", "x"], "only 'drawbridge serve' has it"),
  ])
  func anUnknownWordIsExplained(words: [String], reason: String) {
    do throws(UsageError) {
      _ = try Arguments(Self.command(), words[...])
      Issue.record("\(words) is accepted")
    } catch {
      #expect(error.message.contains(reason), "\(error.message)")
    }
  }

  @Test func aWordThatBelongsElsewhereIsNamedWithItsPlace() throws {
    for (name, words, reason) in [
      ("work", ["orders", "echo", "hi"], "write the command after '--'"),
      ("check-config", ["gateway.yaml"], "the configuration is --config gateway.yaml"),
      ("serve", ["gateway.yaml"], "the configuration is --config gateway.yaml"),
    ] {
      let command = try #require(CommandList.all.first { $0.name == name })
      do throws(UsageError) {
        _ = try Arguments(command, words[...])
        Issue.record("\(words) is accepted")
      } catch {
        #expect(error.message.contains(reason), "\(error.message)")
      }
    }
  }

  @Test func helpIsShownForEveryFormOfTheFlag() throws {
    for words in [["try", "--help"], ["try", "-h"], ["help", "try"], ["try", "--watch", "-h"]] {
      guard case .help(let command) = try Invocation(words, among: [Self.command()]) else {
        Issue.record("\(words)")
        continue
      }
      #expect(command.name == "try")
    }
  }

  // MARK: The declarations

  @Test(arguments: CommandList.all.map(\.name)) func aCommandExplainsItself(name: String) throws {
    let command = try #require(CommandList.all.first { $0.name == name })
    #expect(Set(command.flags.map(\.name)).count == command.flags.count, "a flag is declared twice")
    #expect(!command.examples.isEmpty)
    #expect(command.exitCodes.contains { $0.code == 0 })
    #expect(command.exitCodes.contains { $0.code == 64 })
    #expect(command.exitCodes.map(\.code) == command.exitCodes.map(\.code).sorted())
    let help = HelpText.text(of: command)
    for line in help.split(separator: "\n") where !line.hasPrefix("  drawbridge") && !line.hasPrefix("  curl") {
      #expect(line.count <= 100, "\(line)")
    }
    for flag in command.flags {
      #expect(help.contains("\n  --\(flag.name)"))
      #expect(!flag.summary.hasSuffix("."))
      for shell in Completion.shells {
        #expect(Completion.script(for: shell, CommandList.all).contains(flag.name), "\(shell)")
      }
    }
    #expect(ManualPage.page(of: command, version: "1").contains(".SH NAME\ndrawbridge\\-"))
  }

  @Test func roffIsEscaped() {
    #expect(ManualPage.roff(".a-b\\c") == "\\&.a\\-b\\ec")
  }

  @Test(arguments: [
    (0.42, "0.4 s"), (9.96, "10 s"), (59, "59 s"), (600, "10 min"), (7200, "2 h"), (1e6, "11 d"), (-1, "0 s"),
  ])
  func agesAreWrittenInAShortForm(seconds: Double, text: String) { #expect(Words.age(seconds) == text) }

  @Test func sizesAndNumbersAreReadable() {
    #expect([0, 1023, 1024, 1536, 20 << 20].map(Words.bytes) == ["0 B", "1023 B", "1 KiB", "1.5 KiB", "20 MiB"])
    #expect([0, 999, 1000, -1_234_567].map(Words.grouped) == ["0", "999", "1,000", "-1,234,567"])
    #expect([0.0004, 0.012, 1.25].map(Words.shortTime) == ["0.4 ms", "12 ms", "1.3 s"])
  }

  // MARK: URLs

  @Test func theSchemeOfAURLMayHaveCapitalLetters() throws {
    let url = try GatewayURL("HTTPS://gateway.example/below")
    #expect((url.hostField, url.path) == ("gateway.example", "/below") && url.isSecure)
  }

  @Test func aURLMayLackItsScheme() throws {
    let url = try GatewayURL("gateway.example:8080/below/")
    #expect(
      (url.hostField, url.path, url.text) == ("gateway.example:8080", "/below", "http://gateway.example:8080/below/"))
    #expect(!url.isSecure)
    #expect(try GatewayURL("[::1]:80").hostField == "[::1]:80")
    for text in ["gateway.example", "ftp://gateway.example:80", ":8080", "http://a?b", "unix:relative", "http://u:p@h"]
    {
      #expect(throws: UsageError.self) { try GatewayURL(text) }
    }
  }
}
