import HTTPCodec
import Testing

@testable import RedisProtocol

@Suite struct RedisURLTests {
  @Test(
    arguments: [
      ("redis://localhost", "redis://localhost:6379/0", nil, nil),
      ("REDISS://r.example:7000/", "rediss://r.example:7000/0", nil, nil),
      ("redis://:secret@10.0.0.1:1/15", "redis://10.0.0.1:1/15", nil, "secret"),
      ("redis://anna:s%40%3A%2Fx@h/2", "redis://h:6379/2", "anna", "s@:/x"),
      ("redis://anna@h", "redis://h:6379/0", "anna", nil),
      ("redis://anna:@h", "redis://h:6379/0", "anna", nil),
      ("redis://a:b:c@h", "redis://h:6379/0", "a", "b:c"),
      ("rediss://[2001:db8::1]:6380", "rediss://[2001:db8::1]:6380/0", nil, nil),
      ("redis://[fe80::1%25eth0]/1", "redis://[fe80::1%25eth0]:6379/1", nil, nil),
    ] as [(String, String, String?, String?)])
  func readsEveryForm(text: String, description: String, user: String?, password: String?) throws {
    let url = try RedisURL(text)
    #expect(url.description == description)
    #expect(url.isSecure == description.hasPrefix("rediss"))
    #expect(url.credentials.user == user && url.credentials.password == password)
  }

  @Test func theDefaultPortFollowsFromTheKindOfServer() throws {
    #expect(try RedisURL("redis://h", defaultPort: 26_379).port == 26_379)
    #expect(try RedisURL("redis://h:1", defaultPort: 26_379).port == 1)
  }

  @Test(arguments: [
    ("http://h", RedisURLError.scheme), ("redis:h", .scheme), ("redis+unix:///run/redis", .scheme), ("", .scheme),
    ("redis://", .authority(.badHost)), ("redis:///0", .authority(.badHost)), ("redis://::1", .authority(.badHost)),
    ("redis://[::1", .authority(.badHost)), ("redis://h:0", .authority(.badPort)),
    ("redis://h:+1", .authority(.badPort)),
    ("redis://h:99999", .authority(.badPort)), ("redis://a:%zz@h", .authority(.badEscape)),
    ("redis://a:%00@h", .authority(.badEscape)), ("redis://ä:b@h", .authority(.badCharacter)),
    ("redis://h/x", .database), ("redis://h/-1", .database), ("redis://h/1/2", .database),
    ("redis://h/2147483648", .database), ("redis://h?db=1", .parameters), ("redis://h/1#x", .parameters),
  ])
  func refusesAnInvalidURL(text: String, error: RedisURLError) {
    #expect(throws: error) { try RedisURL(text) }
  }

  @Test func noTextHasTheCredentials() throws {
    let url = try RedisURL("redis://anna:hunter2@h/1")
    var dumped = ""
    dump(url, to: &dumped)
    dump(url.credentials, to: &dumped)
    for text in ["\(url)", String(reflecting: url), "\(url.credentials)", String(reflecting: url.credentials), dumped] {
      #expect(!text.contains("hunter2") && !text.contains("anna"), "\(text)")
    }
  }
}
